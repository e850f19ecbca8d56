"""From the calls of operators that ranks timed to the points that say how long an operator takes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from labkit.hardware import Measured

Call = tuple[float, float, float]
"""An operator's call: flops (0 where they are not counted), bytes, seconds."""


def points(calls: Iterable[Call], longer: float = 1.0) -> tuple[Measured, ...]:
    """Return what calls with as much work took: those whose flops and bytes lie within half a power of two.

    Of their times it is the lower quartile, times what :func:`disturbance` found. The mean of a few calls would tell by
    chance whether something else ran during one of them.
    """
    return tuple(
        Measured(
            median(one[0] for one in found),
            median(one[1] for one in found),
            lower_quartile(one[2] for one in found) * longer,
        )
        for found in _similar_calls(calls)
    )


def disturbance(operators: Iterable[Iterable[Call]]) -> float:
    """Return how many times their lower quartile calls took on average, over all operators: 1 on a host of one's own.

    Other programs, and other guests of the same machine, only add to a call's time, now here and now there. A step is a
    sum of calls, so it takes their means: lower quartiles would not add up to what any step takes.
    """
    alike = [found for calls in operators for found in _similar_calls(calls)]
    undisturbed = sum(lower_quartile(one[2] for one in found) * len(found) for found in alike)
    return max(sum(one[2] for found in alike for one in found) / undisturbed, 1.0) if undisturbed else 1.0


def _similar_calls(calls: Iterable[Call]) -> list[list[Call]]:
    bins: dict[tuple[int, int], list[Call]] = defaultdict(list)
    for flops, num_bytes, seconds in calls:
        bins[round(2 * math.log2(flops + 1)), round(2 * math.log2(num_bytes + 1))].append((flops, num_bytes, seconds))
    return [found for _, found in sorted(bins.items())]


def lower_quartile(times: Iterable[float]) -> float:
    """Return the time that a quarter of them do not exceed."""
    ordered = sorted(times)
    return ordered[len(ordered) // 4]
