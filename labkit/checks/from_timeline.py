"""The wire as a timeline recorded it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from labkit.checks.case import Wait
from labkit.checks.rank_side import CASE_KIND
from labkit.checks.wire import CollectiveCall, Message, Wire, WireProblem, ordered
from labkit.timeline import Timeline
from labkit.timeline.messages import RECEIVES, SENDS, is_call
from labkit.timeline.span import Lane

_PROBLEMS = ("unmatched_send", "unmatched_recv", "changed_in_flight", "read_before_wait", "size_mismatch", "not_waited")
_NO_CALL = ("wait", "span")
_EVER = 1 << 62


def wire_of_case(timeline: Timeline, number: int, own: bool = False) -> Wire:
    """Return what passed on the wire while case `number` of a run was under way.

    Args:
        timeline: Of the run.
        number: Which case.
        own: Leave out the problems that were seen in other cases; else all of the run's are told.
    """
    keep = rows_of_case(timeline, number)
    part = timeline.select(keep)
    calls = _calls(timeline, keep)
    waited = _waited(timeline, calls)
    place = {row: position for rows in calls.values() for position, row in enumerate(rows)}
    problems = (p for p in timeline.problems if p.kind in _PROBLEMS and not (own and p.row >= 0 and not keep[p.row]))
    return Wire(
        ordered(Message(m.src, m.dst, m.bytes, m.sequence, m.received) for m in part.messages()),
        tuple(
            CollectiveCall(c.rank, c.kind, c.bytes, c.sequence, waited.get((c.rank, c.sequence)))
            for c in part.collectives()
        ),
        tuple(WireProblem(p.kind, p.rank, p.text, place.get(p.row, -1)) for p in problems),
    )


def cases_met(timeline: Timeline, num_cases: int) -> bool:
    """Return whether one case of a run may have got what another sent, or a problem lies in nobody's calls."""
    case_of = np.full(len(timeline), -1)
    for number in range(num_cases):
        case_of[rows_of_case(timeline, number)] = number
    flows = timeline.flow[timeline.flow >= 0]
    cases = case_of[timeline.flow >= 0]
    order = np.argsort(flows, kind="stable")
    same = np.diff(flows[order]) == 0
    met = bool((same & (np.diff(cases[order]) != 0)).any())
    return met or any(p.kind in _PROBLEMS and p.row < 0 for p in timeline.problems)


def rows_of_case(timeline: Timeline, number: int) -> npt.NDArray[np.bool_]:
    """Return which rows of a run began while case `number` was under way on their rank, its own mark included."""
    keep = np.zeros(len(timeline), dtype=bool)
    marks = np.flatnonzero((timeline.kind == CASE_KIND) & (timeline.name == f"case {number}"))
    for mark in marks.tolist():
        keep |= (
            (timeline.rank == timeline.rank[mark])
            & (timeline.start_ns >= timeline.start_ns[mark])
            & (timeline.start_ns <= timeline.end_ns[mark])
        )
    return keep


def _calls(timeline: Timeline, keep: npt.NDArray[np.bool_]) -> dict[int, list[int]]:
    """Return the rows of each rank's calls, in their order, as Timeline.collectives() counts them."""
    of_rank: dict[int, list[int]] = {}
    for row in np.flatnonzero(keep & is_call(timeline)).tolist():
        if timeline.kind[row] != "wait":
            of_rank.setdefault(int(timeline.rank[row]), []).append(row)
    return of_rank


def _waited(timeline: Timeline, of_rank: dict[int, list[int]]) -> dict[tuple[int, int], int]:
    """Return for each call that was waited for, by rank and position, the position of the rank's next call."""
    table = timeline.tables.get("call")
    if table is None:
        return {}
    blocking = set(table["span"][table["blocking"].astype(bool)].tolist())
    begun: dict[int, int] = {}
    waits = timeline.tables.get("wait")
    columns = (
        [] if waits is None else [waits["span"], waits["of"], waits.get("aside", np.zeros(len(waits["of"]), bool))]
    )
    for wait, of, aside in zip(*(column.tolist() for column in columns), strict=True):
        # Aside, in a callback or another thread, somebody waits while the program goes on: that is after everything.
        start = _EVER if aside else int(timeline.start_ns[wait])
        begun[int(of)] = min(start, begun.get(int(of), start))
    found = {}
    for rank, calls in of_rank.items():
        for position, row in enumerate(calls):
            if row in blocking:
                found[rank, position] = position + 1
            elif row in begun:
                later = (n for n, other in enumerate(calls) if n > position and timeline.start_ns[other] >= begun[row])
                found[rank, position] = next(later, len(calls))
    return found


def waits_of(timeline: Timeline | None) -> tuple[Wait, ...]:
    """Return what each rank was waiting for when a run was ended: its last call that was never seen to end."""
    if timeline is None or "open" not in timeline.tables:
        return ()
    waits: dict[int, Wait] = {}
    for row in timeline.tables["open"]["span"].tolist():
        if timeline.lane[row] != Lane.COMMUNICATION or timeline.kind[row] in _NO_CALL:
            continue
        rank, kind, peer = int(timeline.rank[row]), str(timeline.kind[row]), int(timeline.peer[row])
        before = waits.get(rank)
        # A receive that was posted beside a send is what really waits; a blocking call hides what was posted before.
        if before is None or kind in ("send", "recv") or before.operation == "isend":
            waits[rank] = Wait(rank, kind, peer if peer >= 0 or kind in (*SENDS, *RECEIVES) else None)
    return tuple(waits[rank] for rank in sorted(waits))
