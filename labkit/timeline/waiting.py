"""For whom ranks wait: who comes last to the collectives of all, time after time, and who waits when a run is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from labkit.timeline.distinct import distinct_rows
from labkit.timeline.grouping import by_rank
from labkit.timeline.intervals import total, union, without
from labkit.timeline.messages import RECEIVES, REMOTE_CALLS, SENDS, SERVED, is_call
from labkit.timeline.metrics import blocked_of_ranks, wait_ns
from labkit.timeline.transfers import last_to_come

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline

_ALONE = (*SENDS, *RECEIVES, *REMOTE_CALLS, SERVED, "span", "wait")
"""Kinds that are no collective."""
_ENOUGH = 3
"""Collectives that tell a habit from an accident."""
_OFTEN = 0.8
"""Of the collectives: in so many the late ones come after all others."""
_WAITS = 0.35
"""Of what any of the others waits: a late rank that waits longer is late because of somebody else."""
_CLEAR = 2.0
"""By how many standard deviations the mean lead of the late ones is above nothing."""
_TOGETHER = 0.05
"""Of how far apart ranks come to most collectives: to one to which they come closer they were sent by another."""
_APART = 3.0
"""How many times as far from the others as these are from each other the late ones are, where there are few."""


@dataclass(frozen=True)
class Late:
    """Who comes last, and how long each rank stood still for them.

    Attributes:
        ranks: They come last together, ascending.
        waited_ns: Shape (num_ranks,); 0 for the late ones.
    """

    ranks: list[int]
    waited_ns: npt.NDArray[np.int64]


def come_last(timeline: Timeline) -> Late | None:
    """Return the ranks that come last to the collectives of all ranks, by habit; None where nobody does.

    Only where all ranks make the same calls: one that has to do something else before is not late. Nobody is named
    whom other noise would excuse: the late ones come after the others in most collectives, by more than that varies. In
    fewer than three they come long after the others, who come together. Collectives of a kind to which all always come
    at once, such as a setup's, do not count: there nobody could be late.
    """
    arrival = _arrivals(timeline)
    if not len(arrival) or not same_calls(timeline):
        return None
    apart = np.ptp(arrival, axis=1)
    arrival = arrival[apart >= _TOGETHER * np.median(apart)]
    waits = (arrival.max(axis=1, keepdims=True) - arrival).mean(axis=0)
    order = np.argsort(waits, kind="stable")
    gaps = np.diff(waits[order])[: timeline.num_ranks // 2]
    late = np.sort(order[: int(gaps.argmax()) + 1])
    others = np.delete(np.arange(timeline.num_ranks), late)
    if gaps.max() < max(np.ptp(waits[late]), np.ptp(waits[others])):
        return None  # all ranks lie apart, and there are no two groups
    still = wait_ns(timeline)
    if still[late].max() > _WAITS * still[others].min() or not _by_habit(arrival[:, late], arrival[:, others]):
        return None
    return Late(late.tolist(), _waited_ns(timeline, late))


def _arrivals(timeline: Timeline) -> npt.NDArray[np.int64]:
    """Return when each rank came to each collective that all of them made, shape (collectives, num_ranks).

    Without those of a kind to which all of them always come at once.
    """
    none = np.empty((0, timeline.num_ranks), np.int64)
    table = timeline.tables.get("call")
    if table is None or "group" not in table or not len(table["span"]):
        return none
    joint = ~np.isin(timeline.kind[table["span"]], _ALONE)
    rows = table["span"][joint]
    if not len(rows):
        return none
    _, code = distinct_rows([table["group"][joint], table["number"][joint], timeline.kind[rows]])
    order = np.lexsort((timeline.rank[rows], code))
    rows, code = rows[order], code[order]
    of_all = np.bincount(code) == timeline.num_ranks
    rows = rows[of_all[code]].reshape(-1, timeline.num_ranks)
    if not (timeline.rank[rows] == np.arange(timeline.num_ranks)).all():
        return none
    arrival = timeline.start_ns[rows].astype(np.int64)
    kind = timeline.kind_codes[1][rows[:, 0]]
    return np.asarray(arrival[np.isin(kind, kind[np.ptp(arrival, axis=1) > 0])])


def same_calls(timeline: Timeline) -> bool:
    """Return whether every rank made calls of the same kinds, in the same order."""
    _, kind = timeline.kind_codes
    calls = by_rank(timeline, is_call(timeline))
    return all(np.array_equal(kind[mine], kind[calls[0]]) for mine in calls)


def _by_habit(late: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> bool:
    """Return whether the late ones come after all others, by more than chance has it."""
    lead = late.min(axis=1) - others.max(axis=1)
    spread = np.maximum(np.ptp(others, axis=1), np.ptp(late, axis=1))
    if len(lead) < _ENOUGH:
        return others.shape[1] > 1 and bool((lead > _APART * spread).all())
    return bool((lead > 0).mean() >= _OFTEN and lead.mean() >= _CLEAR * lead.std())


def _waited_ns(timeline: Timeline, late: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how long each rank stood still in calls to which one of the late ones came last."""
    came, by = last_to_come(timeline)
    for_them = (came > timeline.start_ns) & is_call(timeline) & np.isin(by, late) & ~np.isin(timeline.rank, late)
    waited = np.zeros(timeline.num_ranks, dtype=np.int64)
    still = blocked_of_ranks(timeline)
    for rank, rows in enumerate(by_rank(timeline, for_them)):
        if len(rows):
            then = union(timeline.start_ns[rows], came[rows])
            waited[rank] = total(still[rank]) - total(without(still[rank], then))
    return waited


@dataclass(frozen=True)
class Stuck:
    """Who waits when the run is over.

    Attributes:
        ranks: Their last call never ended, and those it needs never joined it; ascending.
        circle: Those of them that wait for each other, whatever comes.
        for_whom: Those that are waited for and do not wait; empty where the record does not tell.
        differ: Two calls that ranks took for the same collective, as (rank, kind); empty where there are none.
    """

    ranks: list[int]
    circle: list[int]
    for_whom: list[int]
    differ: tuple[tuple[int, str], ...] = ()


def stuck(timeline: Timeline) -> Stuck | None:
    """Return who still waits for somebody when the run is over; None where all calls ended or had all they needed."""
    table = timeline.tables.get("open")
    if table is None or not len(table["span"]):
        return None
    needs: dict[int, set[int]] = {}
    differ: tuple[tuple[int, str], ...] = ()
    for row in _standing(timeline, table["span"]):
        missing = _missing(timeline, row)
        if missing is not None:
            needs.setdefault(int(timeline.rank[row]), set()).update(missing)
            differ = differ or _differ(timeline, row)
    if not needs:
        return None
    waiting = sorted(needs)
    circle = [rank for rank in waiting if rank in _reached(needs, rank)]
    return Stuck(waiting, circle, sorted(set().union(*needs.values()) - set(waiting)), differ)


def _standing(timeline: Timeline, unfinished: npt.NDArray[Any]) -> list[int]:
    """Return the rows of the calls in which ranks stand that never ended, or for which they wait."""
    call, wait = timeline.tables.get("call", {}), timeline.tables.get("wait", {})
    blocking = call["span"][call["blocking"].astype(bool)] if "blocking" in call else np.empty(0, np.int64)
    found: list[int] = np.intersect1d(unfinished, blocking).tolist()
    if "of" in wait:
        found += wait["of"][np.isin(wait["span"], unfinished)].tolist()
    return found


def _missing(timeline: Timeline, row: int) -> set[int] | None:
    """Return which ranks never joined a call, as far as is known; None where all did, and bytes move."""
    if timeline.peer[row] >= 0:
        return None if timeline.flow[row] >= 0 else {int(timeline.peer[row])}
    group, place = _of_group(timeline, row)
    if not len(place):
        return None
    call = timeline.tables["call"]
    there = set(timeline.rank[place[timeline.kind[place] == timeline.kind[row]]].tolist())
    size = int(call["group_size"][np.flatnonzero(call["span"] == row)[0]])
    if len(there) >= size:
        return None
    return set(range(size) if size == timeline.num_ranks else timeline.rank[group].tolist()) - there


def _differ(timeline: Timeline, row: int) -> tuple[tuple[int, str], ...]:
    """Return this call and another one that a rank of the group made in its place; () where nobody did."""
    _, place = _of_group(timeline, row)
    others = place[timeline.kind[place] != timeline.kind[row]]
    return tuple((int(timeline.rank[each]), str(timeline.kind[each])) for each in (row, *others[:1])) * bool(
        len(others)
    )


def _of_group(timeline: Timeline, row: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the collectives of a collective's group, and those of them that are in its place."""
    none = np.empty(0, np.int64)
    call = timeline.tables.get("call", {})
    at = np.flatnonzero(call["span"] == row) if {"group", "group_size", "number"} <= call.keys() else none
    if not len(at) or timeline.kind[row] in _ALONE:
        return none, none
    joint = (call["group"] == call["group"][at[0]]) & ~np.isin(timeline.kind[call["span"]], _ALONE)
    return call["span"][joint], call["span"][joint & (call["number"] == call["number"][at[0]])]


def _reached(needs: dict[int, set[int]], rank: int) -> set[int]:
    """Return all ranks to which waiting leads from this one."""
    found: set[int] = set()
    left = list(needs[rank])
    while left:
        other = left.pop()
        if other not in found:
            found.add(other)
            left += needs.get(other, ())
    return found
