"""What a rank runs of ring_cost."""

from labkit.checks.on_ranks.plain_calls import call_functions as drive

__all__ = ["drive"]
