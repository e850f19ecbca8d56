"""What a rank runs of mesh_groups."""

from __future__ import annotations

import itertools
from typing import Any

import torch.distributed as dist

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integers, listed, tensor
from labkit.exercises.hybrid_parallelism.meshes import sizes_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Ask for places and lists of ranks, then sum a tensor in a group along some axes.

    Where two of the lists overlap, no group is asked for: a rank cannot be in both, and its sum would only hang.

    Inputs: sizes (of the mesh), asked (ranks), axes (lists of axes), x (of this rank).
    """
    sizes = sizes_of(inputs)
    asked, axes = integers(inputs, "asked"), listed(inputs, "axes")
    found: dict[str, Value] = {
        "places": [_plain(functions["coordinates"](rank, dict(sizes))) for rank in asked],
        "along": [_plain(functions["ranks_along"](rank, dict(sizes), *each)) for rank in asked for each in axes],
    }
    sums: list[Value] = []
    members: list[Value] = []
    for number, each in enumerate(axes):
        if _overlap(listed(found, "along")[number :: len(axes)]):
            members.append("no group: lists overlap")
            sums.append(tensor(inputs, "x"))
            continue
        group: Any = functions["group_along"](dict(sizes), *each)
        total = tensor(inputs, "x").clone()
        if isinstance(group, dist.ProcessGroup):
            members.append(list(dist.get_process_group_ranks(group)))
            dist.all_reduce(total, group=group)
        else:
            members.append(f"{group!r:.60}")
        sums.append(total)
    return {**found, "members": members, "sums": sums}


def _overlap(lists: list[Any]) -> bool:
    """Return whether two lists that differ share a rank."""
    return any(
        one != other and isinstance(one, list) and isinstance(other, list) and any(each in other for each in one)
        for one, other in itertools.combinations(lists, 2)
    )


def _plain(value: Any) -> Value:
    """Return a dict or list as it is, any other thing as its text."""
    if isinstance(value, dict):
        return {str(key): each for key, each in value.items()}
    return list(value) if isinstance(value, list | tuple | range) else f"{value!r:.60}"
