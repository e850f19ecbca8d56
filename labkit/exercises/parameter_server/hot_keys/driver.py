"""What a rank runs of hot_keys."""

from labkit.exercises.parameter_server.on_ranks import call_with_tensors as drive

__all__ = ["drive"]
