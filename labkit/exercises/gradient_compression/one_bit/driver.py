"""What a rank runs of one_bit."""

from labkit.exercises.gradient_compression.on_ranks import compress_tensors as drive

__all__ = ["drive"]
