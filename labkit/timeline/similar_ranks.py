"""Groups of ranks that did the same at the same time, so that a picture can show one rank for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from labkit.timeline.grouping import by_rank
from labkit.timeline.memory import has_memory, peak_memory_bytes
from labkit.timeline.span import Lane
from labkit.timeline.timeline import Timeline

_SAME = 0.005
"""Of the whole: times that differ by less lie on each other in a picture."""
_AS_MUCH = 0.02
"""Of the most that any rank held: memory that differs by less looks the same."""
_FEWEST, _FEWEST_BESIDE = 3, 2
_MANY = 8


def similar_ranks(timeline: Timeline, shown: Sequence[int], *, even_few: bool = False) -> list[list[int]]:
    """Return groups of ranks, of those shown, that made the same calls and ran the same operators.

    They did so at the same time, to half a percent of the whole, and held as much memory at their peaks. A group has at
    least three ranks. Up to eight ranks that exchange messages are no group: which of them sends to which is what their
    picture tells. Where even few are asked for, as where two runs stand beside each other, these are groups, and so are
    two ranks.
    """
    if not len(timeline) or (not even_few and timeline.num_ranks <= _MANY and bool((timeline.flow >= 0).any())):
        return []
    _, kind = timeline.kind_codes
    rows_of = by_rank(timeline, timeline.lane != Lane.REGION)
    within = max(_SAME * timeline.makespan_ns, 1)
    most = _most_held(timeline)
    as_much = _AS_MUCH * max(most, default=0)
    groups: list[list[int]] = []
    for rank in shown:
        mine = rows_of[rank]
        for group in groups:
            other = rows_of[group[0]]
            if len(other) == len(mine) and (
                bool((kind[mine] == kind[other]).all())
                and bool((timeline.lane[mine] == timeline.lane[other]).all())
                and bool((timeline.bytes[mine] == timeline.bytes[other]).all())
                and bool((np.abs(timeline.start_ns[mine] - timeline.start_ns[other]) <= within).all())
                and bool((np.abs(timeline.end_ns[mine] - timeline.end_ns[other]) <= within).all())
                and abs(most[rank] - most[group[0]]) <= as_much
            ):
                group.append(rank)
                break
        else:
            groups.append([rank])
    fewest = _FEWEST_BESIDE if even_few else _FEWEST
    return [group for group in groups if len(group) >= fewest and len(rows_of[group[0]])]


def _most_held(timeline: Timeline) -> list[int]:
    """Return the most bytes each rank held; zeros where nothing is known of memory."""
    if not has_memory(timeline):
        return [0] * timeline.num_ranks
    return [peak_memory_bytes(timeline, rank) for rank in range(timeline.num_ranks)]
