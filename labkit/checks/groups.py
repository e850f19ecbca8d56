"""Which group a rank of a case is in: what the judge asks."""

from __future__ import annotations

from labkit.checks.case import Case
from labkit.checks.values import integers, listed


def group_of(case: Case, rank: int = 0, key: str = "groups") -> list[int]:
    """Return the ranks of a rank's group, ascending as they were given; all ranks where a case has no groups.

    Args:
        case: Its inputs hold lists of ranks under `key`, or under "group" the one that there is; a rank outside it is
            told that one.
        rank: Whose.
        key: Where the lists are.
    """
    inputs = case.inputs[rank]
    if inputs.get(key):
        return next(ranks for ranks in listed(inputs, key) if rank in ranks)
    return integers(inputs, "group") if inputs.get("group") else list(range(case.world_size))
