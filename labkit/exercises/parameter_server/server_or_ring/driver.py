"""What a rank runs of server_or_ring."""

from labkit.checks.on_ranks.plain_calls import call_functions as drive

__all__ = ["drive"]
