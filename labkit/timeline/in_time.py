"""How long a step would take if the ranks that come last to its collectives came with the others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from labkit.timeline.distinct import distinct_rows
from labkit.timeline.messages import is_call
from labkit.timeline.metrics import blocked_of_ranks
from labkit.timeline.span import Lane
from labkit.timeline.transfers import moving

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline

_STEP = "optimizer"
"""The region that ends a step."""
_NEVER = -(2**62)


def step_in_time_ns(timeline: Timeline, late: Sequence[int]) -> float | None:
    """Return the mean length of a step in which nobody waits for the late ranks, ns; None where that is not known.

    Each collective begins when the last of the other ranks has come and the one before it is over, its bytes move for
    as long as they did, and what comes after the last of them takes as long. It is known where a run has steps that
    end with a region "optimizer", calls of nothing but collectives of all ranks, and no other rank that stood still
    before it had made all calls of a step: else it would have made them earlier, too.

    Args:
        timeline: A run of a virtual cluster: there bytes move for the same time whoever came last.
        late: The ranks that come last.
    """
    others = [rank for rank in range(timeline.num_ranks) if rank not in late]
    edges = _edges(timeline, others[0])
    calls = _calls(timeline, others)
    if len(edges) < 2 or calls is None:
        return None
    came, begins, ends = calls
    lengths = []
    for begin, end in pairwise(edges.tolist()):
        mine = (ends > begin) & (ends <= end)
        if not mine.any() or (came[mine] < begin).any() or _stood_before(timeline, others, came[mine].max(), begin):
            return None
        lengths.append(_replayed(came[mine], ends[mine] - begins[mine], _computed(timeline, others, ends[mine].max()))
                       + end - ends[mine].max() - begin)  # fmt: skip
    return float(np.mean(lengths))


def lost_ns(timeline: Timeline, late: Sequence[int]) -> tuple[float, float] | None:
    """Return what the mean step loses to the late ranks, and how long it is, ns; None where that is not known.

    Only of a virtual cluster: of real processes nobody knows how long bytes would have moved.
    """
    is_virtual = "virtual time" in timeline.tables.get("clock", {}).get("method", ())
    in_time = step_in_time_ns(timeline, late) if is_virtual else None
    if in_time is None:
        return None
    edges = _edges(timeline, next(rank for rank in range(timeline.num_ranks) if rank not in late))
    step = float(edges[-1] - edges[0]) / (len(edges) - 1)
    return step - in_time, step


def _edges(timeline: Timeline, rank: int) -> npt.NDArray[np.int64]:
    """Return when the first region of a rank begins, and when each of its steps ends."""
    mine = (timeline.rank == rank) & (timeline.lane == Lane.REGION)
    ends = np.sort(timeline.end_ns[mine & (timeline.name == _STEP)])
    return np.concatenate(([timeline.start_ns[mine].min()], ends)) if len(ends) else ends


def _calls(timeline: Timeline, others: Sequence[int]) -> tuple[npt.NDArray[np.int64], ...] | None:
    """Return when the last of the others came to each collective, when its bytes began to move, and when they had come.

    None where there are other calls than collectives of all ranks.
    """
    table = timeline.tables.get("call", {})
    if "group" not in table or not len(table["span"]):
        return None
    span = table["span"]
    if not np.isin(np.flatnonzero(is_call(timeline) & (timeline.kind != "wait")), span).all():
        return None
    _, code = distinct_rows([table["group"], table["number"], timeline.kind[span]])
    if (np.bincount(code) != timeline.num_ranks).any():
        return None
    came, begins, ends = (np.full(code.max() + 1, value) for value in (_NEVER, -_NEVER, _NEVER))
    theirs = np.isin(timeline.rank[span], others)
    np.maximum.at(came, code[theirs], timeline.start_ns[span[theirs]])
    moved = moving(timeline)
    of = np.full(len(timeline), -1)
    of[span] = code
    known = of[moved.row] >= 0
    np.minimum.at(begins, of[moved.row[known]], moved.start_ns[known])
    np.maximum.at(ends, of[moved.row[known]], moved.end_ns[known])
    order = np.argsort(begins, kind="stable")
    return came[order], begins[order], ends[order]


def _stood_before(timeline: Timeline, others: Sequence[int], last: int, begin: int) -> bool:
    """Return whether one of the others had stood still in a step before it had made its last call."""
    still = blocked_of_ranks(timeline)
    return any(bool(((still[rank][1] > begin) & (still[rank][1] <= last)).any()) for rank in others)


def _computed(timeline: Timeline, others: Sequence[int], last: int) -> int:
    """Return when the others had computed all that they did before the last collective was over."""
    rows = (timeline.lane == Lane.COMPUTE) & np.isin(timeline.rank, others) & (timeline.end_ns <= last)
    return int(timeline.end_ns[rows].max(initial=_NEVER))


def _replayed(came: npt.NDArray[np.int64], moved: npt.NDArray[np.int64], computed: int) -> int:
    """Return when the last collective and the others' computing are over."""
    over = _NEVER
    for at, long in zip(came.tolist(), moved.tolist(), strict=True):
        over = max(at, over) + long
    return max(over, computed)
