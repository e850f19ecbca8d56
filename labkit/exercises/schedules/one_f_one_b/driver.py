"""What a rank runs of one_f_one_b."""

from labkit.exercises.stages.on_ranks import write_schedules as drive

__all__ = ["drive"]
