"""What a rank runs of where_it_pays."""

from labkit.checks.on_ranks.plain_calls import call_functions as drive

__all__ = ["drive"]
