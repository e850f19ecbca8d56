"""What a rank runs of gpipe."""

from labkit.exercises.pipeline.on_ranks import write_schedules as drive

__all__ = ["drive"]
