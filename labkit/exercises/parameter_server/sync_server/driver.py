"""What a rank runs of sync_server."""

from labkit.exercises.parameter_server.called_servers import drive_server as drive

__all__ = ["drive"]
