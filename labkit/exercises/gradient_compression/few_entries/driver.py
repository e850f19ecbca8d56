"""What a rank runs of few_entries."""

from labkit.exercises.gradient_compression.on_ranks import compress_tensors as drive

__all__ = ["drive"]
