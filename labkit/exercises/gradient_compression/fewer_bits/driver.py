"""What a rank runs of fewer_bits."""

from labkit.exercises.gradient_compression.on_ranks import compress_tensors as drive

__all__ = ["drive"]
