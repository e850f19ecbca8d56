"""For whom ranks wait: which rank came last to the calls that the others stood in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from labkit.timeline.intervals import total, union, without
from labkit.timeline.messages import is_call
from labkit.timeline.metrics import blocked_of_ranks
from labkit.timeline.transfers import last_to_come

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline


def waited_for(timeline: Timeline) -> tuple[int, npt.NDArray[np.int64]]:
    """Return the rank for which the others stood still longest, and how long each did, ns, shape (num_ranks,).

    The rank is -1 where nobody waited for another one.
    """
    came, by = last_to_come(timeline)
    rows = np.flatnonzero((came > timeline.start_ns) & (by != timeline.rank) & is_call(timeline))
    for_it = np.zeros(timeline.num_ranks, dtype=np.int64)
    if not len(rows):
        return -1, for_it
    waited = (came - timeline.start_ns)[rows]
    last = int(np.bincount(by[rows], waited).argmax())
    rows = rows[by[rows] == last]
    for rank, still in enumerate(blocked_of_ranks(timeline)):
        mine = rows[timeline.rank[rows] == rank]
        for_it[rank] = total(still) - total(without(still, union(timeline.start_ns[mine], came[mine])))
    return last, for_it
