"""What a rank runs of zero_bubble."""

from labkit.exercises.stages.on_ranks import write_schedules as drive

__all__ = ["drive"]
