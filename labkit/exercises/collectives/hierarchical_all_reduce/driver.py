"""What a rank runs of hierarchical_all_reduce."""

from labkit.exercises.sums_over_ranks.on_ranks import all_reduce_in_place as drive

__all__ = ["drive"]
