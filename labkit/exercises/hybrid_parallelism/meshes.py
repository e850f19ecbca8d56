"""Places and groups of a mesh, as the judge of this lesson sees them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from labkit.checks.case import Case, Value, Values
from labkit.checks.values import listed

Sizes = dict[str, int]
AXES = ("data", "shard", "pipeline", "tensor")
WEIGHT = 0.5
"""Every number of the parameters that a driver hands over: not 0, which many mistakes give."""


def sizes_of(inputs: Values) -> Sizes:
    """Return the mesh of a case, outermost axis first."""
    return {str(axis): int(size) for axis, size in listed(inputs, "sizes")}


def as_value(sizes: Mapping[str, int]) -> Value:
    """Return a mesh as data that keeps the order of its axes."""
    return [[axis, size] for axis, size in sizes.items()]


def world_size(sizes: Mapping[str, int]) -> int:
    """Return how many ranks a mesh has."""
    return math.prod(sizes.values())


def places(sizes: Mapping[str, int]) -> list[dict[str, int]]:
    """Return each rank's place, axis by axis; the last axis counts fastest."""
    return [dict(zip(sizes, each, strict=True)) for each in itertools.product(*map(range, sizes.values()))]


def along(rank: int, sizes: Mapping[str, int], axes: Sequence[str]) -> list[int]:
    """Return the ranks that differ from this one on these axes only, itself among them, ascending."""
    everybody = places(sizes)
    mine = everybody[rank]
    return [n for n, each in enumerate(everybody) if all(each[a] == mine[a] for a in sizes if a not in axes)]


def ends(rank: int, sizes: Mapping[str, int]) -> list[int]:
    """Return the ranks of the first and the last stage in this rank's pipeline; nobody where there is one stage."""
    stages = along(rank, sizes, ["pipeline"])
    return [stages[0], stages[-1]] if len(stages) > 1 else []


def of_rank(case: Case, rank: int) -> tuple[Sizes, dict[str, int]]:
    """Return the mesh of a case and a rank's place in it."""
    sizes = sizes_of(case.inputs[rank])
    return sizes, places(sizes)[rank]
