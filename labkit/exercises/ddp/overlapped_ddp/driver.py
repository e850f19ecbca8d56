"""What a rank runs of overlapped_ddp."""

from labkit.exercises.ddp.on_ranks import train as drive

__all__ = ["drive"]
