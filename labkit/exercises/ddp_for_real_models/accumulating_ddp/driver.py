"""What a rank runs of accumulating_ddp."""

from labkit.exercises.averaging.on_ranks import train as drive

__all__ = ["drive"]
