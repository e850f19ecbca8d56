"""A timeline's rows by rank and lane, found in one pass however many ranks there are."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from labkit.timeline.cached_answers import cached_with_timeline
from labkit.timeline.span import Lane

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline

Groups = dict[tuple[int, Lane], "npt.NDArray[np.int64]"]

_FEW = 4096
"""Ranks that are looked at one by one."""
NO_ROWS: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)


@cached_with_timeline
def by_rank_and_lane(timeline: Timeline) -> Groups:
    """Return for each (rank, lane) that has spans their row numbers, ascending."""
    if timeline.num_ranks <= _FEW and not (timeline.rank[1:] < timeline.rank[:-1]).any():
        return _of_ranks_in_order(timeline)
    key = timeline.rank.astype(np.int64) * len(Lane) + timeline.lane
    # Sixteen bits are sorted by counting, which is five times as fast; more ranks than that there may be.
    small = timeline.num_ranks * len(Lane) < 2**15
    order = np.argsort(key.astype(np.int16) if small else key, kind="stable")
    there = key[order]
    first = np.flatnonzero(np.concatenate(([True], there[1:] != there[:-1]))) if len(there) else np.empty(0, np.int64)
    present, parts = there[first], np.split(order, first[1:])
    return {
        (number // len(Lane), Lane(number % len(Lane))): part
        for number, part in zip(present.tolist(), parts, strict=False)
    }


def _of_ranks_in_order(timeline: Timeline) -> Groups:
    """Return the groups of a timeline that holds rank after rank: nothing needs to be sorted."""
    edges = np.searchsorted(timeline.rank, np.arange(timeline.num_ranks + 1)).tolist()
    groups: Groups = {}
    for rank, (begin, end) in enumerate(pairwise(edges)):
        lanes = timeline.lane[begin:end]
        for lane in Lane:
            rows = np.flatnonzero(lanes == lane)
            if len(rows):
                groups[rank, lane] = rows + begin
    return groups


def by_rank(timeline: Timeline, keep: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.int64]]:
    """Return for each rank the rows among those kept, ascending; a list of num_ranks arrays."""
    rows = np.flatnonzero(keep)
    ranks = timeline.rank[rows]
    if (ranks[1:] < ranks[:-1]).any():
        order = np.argsort(ranks, kind="stable")
        rows, ranks = rows[order], ranks[order]
    edges = np.searchsorted(ranks, np.arange(timeline.num_ranks + 1))
    return [rows[edges[rank] : edges[rank + 1]] for rank in range(timeline.num_ranks)]
