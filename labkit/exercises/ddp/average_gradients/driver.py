"""What a rank runs of average_gradients."""

from labkit.exercises.averaging.on_ranks import call_on_model as drive

__all__ = ["drive"]
