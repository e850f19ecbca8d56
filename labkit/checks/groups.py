"""Which group a rank of a case is in: what the judge asks."""

from __future__ import annotations

from typing import cast

from labkit.checks.case import Case, Value
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


def in_groups(case: Case) -> bool:
    """Return whether a group of a case has only some of its ranks."""
    groups = [ranks for key in ("group", "groups") for ranks in _lists(case.inputs[0].get(key))]
    return any(len(ranks) < case.world_size for ranks in groups)


def _lists(held: Value) -> list[list[Value]]:
    """Return a list of lists as it is, a single list in one."""
    lists = held if isinstance(held, list) else []
    return cast(list[list[Value]], lists if lists and isinstance(lists[0], list) else [lists] if lists else [])
