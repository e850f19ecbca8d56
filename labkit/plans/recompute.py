"""What a backward pass holds and computes again when only some tensors of a chain are kept.

A chain is what a forward pass makes, each tensor from the one before it. Backward needs every one of them. Those that
were not kept are computed again, from the nearest kept one before them (T. Chen and others, "Training Deep Nets with
Sublinear Memory Cost", arXiv:1604.06174, 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Recomputing:
    """What keeping some tensors of a chain comes to.

    Attributes:
        peak_mb: The most that waits for backward at any time: what is kept up to a tensor, and what is computed again
            between it and the next kept one.
        again_us: How long backward computes again.
        fullest: The kept tensor after which the peak is reached; -1 for the chain's input.
    """

    peak_mb: int
    again_us: int
    fullest: int


def recomputing(sizes_mb: Sequence[int], times_us: Sequence[int], kept: Sequence[int]) -> Recomputing:
    """Return what it comes to when these tensors are kept; the chain's input, which costs nothing here, always is.

    Args:
        sizes_mb: The size of each tensor, in the order in which forward computes them.
        times_us: How long it takes to compute each from the one before it.
        kept: Indices, ascending.
    """
    peak, fullest, held = 0, -1, 0
    for start, end in zip([-1, *kept], [*kept, len(sizes_mb)], strict=True):
        held += sizes_mb[start] if start >= 0 else 0
        between = sum(sizes_mb[start + 1 : end])
        if held + between > peak:
            peak, fullest = held + between, start
    return Recomputing(peak, sum(times_us) - sum(times_us[each] for each in kept), fullest)


def fewest_again_us(sizes_mb: Sequence[int], times_us: Sequence[int], limit_mb: int) -> int | None:
    """Return the shortest time of computing again that stays within the limit, or None if nothing does.

    For each tensor that may be the last one kept so far, the ways that are not beaten in both memory and time go on.
    """
    count = len(sizes_mb)
    ways: list[list[tuple[int, int]]] = [[] for _ in range(count + 1)]  # by last kept + 1: (held, again)
    ways[0] = [(0, 0)]
    best: int | None = None
    for place in range(count + 1):
        for held, again in _unbeaten(ways[place]):
            between_mb = between_us = 0
            for after in range(place, count + 1):
                if held + between_mb > limit_mb:
                    break
                if after == count:
                    best = again + between_us if best is None else min(best, again + between_us)
                    break
                ways[after + 1].append((held + sizes_mb[after], again + between_us))
                between_mb += sizes_mb[after]
                between_us += times_us[after]
    return best


def _unbeaten(ways: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for held, again in sorted(ways):
        if not found or again < found[-1][1]:
            found.append((held, again))
    return found
