"""A timeline's rows by rank and lane, found in one pass however many ranks there are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from labkit.timeline.span import Lane
from labkit.timeline.timeline import Timeline

Groups = dict[tuple[int, Lane], "npt.NDArray[np.int64]"]

NO_ROWS: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)


def by_rank_and_lane(timeline: Timeline) -> Groups:
    """Return for each (rank, lane) that has spans their row numbers, ascending."""
    key = timeline.rank.astype(np.int64) * len(Lane) + timeline.lane
    order = np.argsort(key, kind="stable")
    present, first = np.unique(key[order], return_index=True)
    parts = np.split(order, first[1:])
    return {
        (number // len(Lane), Lane(number % len(Lane))): part
        for number, part in zip(present.tolist(), parts, strict=False)
    }


def by_rank(timeline: Timeline, keep: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.int64]]:
    """Return for each rank the rows among those kept, ascending; a list of num_ranks arrays."""
    rows = np.flatnonzero(keep)
    order = rows[np.argsort(timeline.rank[rows], kind="stable")]
    edges = np.searchsorted(timeline.rank[order], np.arange(timeline.num_ranks + 1))
    return [order[edges[rank] : edges[rank + 1]] for rank in range(timeline.num_ranks)]
