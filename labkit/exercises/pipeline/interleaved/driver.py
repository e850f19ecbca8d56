"""What a rank runs of interleaved."""

from labkit.exercises.pipeline.on_ranks import write_schedules as drive

__all__ = ["drive"]
