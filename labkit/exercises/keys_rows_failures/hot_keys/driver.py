"""What a rank runs of hot_keys."""

from labkit.exercises.keys_rows_failures.on_ranks import call_with_tensors as drive

__all__ = ["drive"]
