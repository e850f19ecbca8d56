"""Which group this rank is in: what the drivers ask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch.distributed as dist

from labkit.checks.case import Values
from labkit.checks.values import integers, listed


def my_group(inputs: Values, key: str = "groups") -> Any:
    """Return this rank's group, None for the default one; every rank calls this, and all groups are made on each.

    Inputs: lists of ranks under `key`; or none.
    """
    if not inputs.get(key):
        return None
    return group_among(listed(inputs, key))


def group_among(lists: Iterable[Sequence[int]]) -> Any:
    """Return this rank's group, None where it is in none of the lists; every rank calls this with the same ones.

    Each different list is made into a group once; an empty one into none.
    """
    made = {ranks: dist.new_group(list(ranks)) for ranks in dict.fromkeys(map(tuple, lists)) if ranks}
    return next((group for ranks, group in made.items() if dist.get_rank() in ranks), None)


def one_group(inputs: Values) -> tuple[Any, bool]:
    """Return the one group of a case, None for the default one, and whether this rank is in it; every rank calls this.

    Inputs: group (its ranks), or none.
    """
    if not inputs.get("group"):
        return None, True
    ranks = integers(inputs, "group")
    return dist.new_group(ranks), dist.get_rank() in ranks


def in_group(group: Any) -> dict[str, Any]:
    """Return the keyword that hands a group on, none for the default one."""
    return {} if group is None else {"group": group}
