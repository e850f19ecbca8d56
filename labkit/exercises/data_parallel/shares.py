"""How many samples each device gets: as equal as can be, or by its speed."""

from __future__ import annotations

from collections.abc import Sequence


def balanced(count: int, devices: int) -> list[int]:
    """Return sizes that differ by at most one, longer ones first, none empty."""
    used = min(count, devices)
    return [count // used + (place < count % used) for place in range(used)]


def by_speed(num_samples: int, speeds: Sequence[int]) -> list[int]:
    """Return shares by handing out one sample at a time, to whoever lacks most of the share that is due."""
    total = sum(speeds)
    given = [num_samples * speed // total for speed in speeds]
    while sum(given) < num_samples:
        lacks = [num_samples * speed - got * total for speed, got in zip(speeds, given, strict=True)]
        given[lacks.index(max(lacks))] += 1
    return given
