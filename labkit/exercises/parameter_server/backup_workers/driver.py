"""What a rank runs of backup_workers."""

from labkit.exercises.parameter_server.called_servers import drive_server as drive

__all__ = ["drive"]
