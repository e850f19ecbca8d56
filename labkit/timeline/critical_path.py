"""The critical path: the chain of work and communication across ranks that decided when the run ended.

Read backwards from the last end, as Scalasca replays a trace in reverse. A rank's program runs until it joins a call:
a blocking call, or the wait() for one. Such a join ended when the call did, and the call began to move when the last of
its ranks came to it: the sender of a receive, the receiver of a send that had to wait, the latest rank of a collective.
There the path changes ranks; where this rank itself came last, it stays and goes through the call. Threads of a rank
are taken as one program.

Source: Böhme, Geimer, Wolf, Arnold 2010, "Identifying the root causes of wait states in large-scale parallel
applications"; Böhme, de Supinski, Geimer, Schulz, Wolf 2012, "Scalable critical-path based performance analysis".
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from labkit.timeline.intervals import overlap
from labkit.timeline.messages import RECEIVES, REMOTE_CALLS, SENDS, SERVED, is_call
from labkit.timeline.metrics import intervals_of_ranks
from labkit.timeline.span import Lane
from labkit.timeline.timeline import Timeline
from labkit.units import format_time


@dataclass(frozen=True)
class Step:
    """One piece of the critical path; each begins when the one before it ends.

    Attributes:
        start_ns: Begin.
        end_ns: End.
        from_rank: The rank on which it begins.
        rank: The rank on which it ends; another one where a message or a late rank leads from there to here.
        kind: "program" for what a rank does by itself, "call" for a communication call.
        row: The call's row in the timeline, -1 for program.
    """

    start_ns: int
    end_ns: int
    from_rank: int
    rank: int
    kind: Literal["program", "call"]
    row: int = -1


@dataclass(frozen=True)
class _Join:
    """Where a program waited for a call: when it went on, and which call (row) it was."""

    end_ns: int
    start_ns: int
    row: int


def critical_path(timeline: Timeline) -> list[Step]:
    """Return the critical path from the first piece to the last, which ends when the timeline does; [] if it is empty.

    Pieces of no length are left out.
    """
    if not len(timeline):
        return []
    last = int(np.lexsort((timeline.lane != Lane.COMMUNICATION, -timeline.end_ns))[0])
    joins = _joins(timeline, last)
    ends = {rank: [join.end_ns for join in of_rank] for rank, of_rank in joins.items()}
    left = {rank: len(of_rank) for rank, of_rank in joins.items()}
    others = _others(timeline)
    begins = np.full(timeline.num_ranks, timeline.end_ns.max(), dtype=np.int64)
    np.minimum.at(begins, timeline.rank, timeline.start_ns)
    first = begins.tolist()
    rank, now = int(timeline.rank[last]), int(timeline.end_ns[last])
    found: list[Step] = []
    while True:
        place = bisect_right(ends.get(rank, []), now, hi=left.get(rank, 0)) - 1
        if place < 0:
            found.append(Step(min(first[rank], now), now, rank, rank, "program"))
            break
        join = joins[rank][place]
        left[rank] = place
        found.append(Step(join.end_ns, now, rank, rank, "program"))
        came, at = _last_to_come(timeline, join, rank, others)
        found.append(Step(at, join.end_ns, came, rank, "call", join.row))
        rank, now = came, at
    return [step for step in reversed(found) if step.end_ns > step.start_ns]


def in_words(timeline: Timeline, steps: Sequence[Step]) -> str:
    """Return what the path consists of, in a sentence."""
    length = sum(step.end_ns - step.start_ns for step in steps)
    if not length:
        return "No critical path: nothing was recorded."
    computing = intervals_of_ranks(timeline, [Lane.COMPUTE])
    compute = 0
    for step in steps:
        if step.kind == "program":
            piece = (np.array([step.start_ns]), np.array([step.end_ns]))
            begin, end = computing[step.rank]
            inside = slice(int(np.searchsorted(end, step.start_ns)), int(np.searchsorted(begin, step.end_ns)))
            compute += overlap(piece, (begin[inside], end[inside]))
    communicate = sum(step.end_ns - step.start_ns for step in steps if step.kind == "call")
    changes = sum(step.from_rank != step.rank for step in steps)
    ranks = len({step.rank for step in steps})
    return (
        f"Critical path, {format_time(length)}: computing {compute / length:.0%}, communicating "
        f"{communicate / length:.0%}, neither {1 - (compute + communicate) / length:.0%}; it visits {ranks} "
        f"rank{'s' * (ranks != 1)} and changes ranks {changes} time{'s' * (changes != 1)}."
    ).replace("%", " %")


def _joins(timeline: Timeline, last: int) -> dict[int, list[_Join]]:
    """Return for each rank where its program waited for a call, by when it went on."""
    call = is_call(timeline)
    blocking = call.copy()
    table = timeline.tables.get("call")
    if table is not None:
        blocking[:] = False
        blocking[table["span"][table["blocking"].astype(bool)]] = True
    if call[last]:
        blocking[last] = True  # the last to end is what the run waited for, whoever did
    start, end = timeline.start_ns, timeline.end_ns
    found = [(row, _Join(int(end[row]), int(start[row]), row)) for row in np.flatnonzero(blocking).tolist()]
    waits = timeline.tables.get("wait")
    if waits is not None:
        for wait, of in zip(waits["span"].tolist(), waits["of"].tolist(), strict=True):
            if end[of] > start[wait]:  # else it was complete before the program asked
                found.append((wait, _Join(int(end[wait]), int(start[of]), of)))
    by_rank: dict[int, list[_Join]] = defaultdict(list)
    for row, join in sorted(found, key=lambda each: (each[1].end_ns, each[1].start_ns, each[0])):
        by_rank[int(timeline.rank[row])].append(join)
    return by_rank


def _others(timeline: Timeline) -> dict[int, list[int]]:
    """Return for each call the calls on other ranks without which it could not end; one list for each collective."""
    found: dict[int, list[int]] = {}
    flows: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(timeline.flow >= 0).tolist():
        flows[int(timeline.flow[row])].append(row)
    for rows in flows.values():
        found |= dict.fromkeys(rows, rows)
    table = timeline.tables.get("call")
    if table is not None:
        members: dict[tuple[str, int, str], list[int]] = defaultdict(list)
        columns = (table["span"], table["group"], table["number"], timeline.kind[table["span"]])
        for row, group, number, kind in zip(*(column.tolist() for column in columns), strict=True):
            if kind not in (*SENDS, *RECEIVES, *REMOTE_CALLS, SERVED, "span"):
                members[group, number, kind].append(row)
        for rows in members.values():
            found |= dict.fromkeys(rows, rows)
    return found


def _last_to_come(timeline: Timeline, join: _Join, rank: int, others: dict[int, list[int]]) -> tuple[int, int]:
    """Return the rank that came to the call last, and when; the rank itself where no other one came later.

    A send that ended before its receive began did not wait for it.
    """
    came, at = rank, join.start_ns
    if str(timeline.kind[join.row]) in REMOTE_CALLS:
        return came, at
    for row in others.get(join.row, ()):
        begin = int(timeline.start_ns[row])
        if at < begin <= join.end_ns and row != join.row:
            came, at = int(timeline.rank[row]), begin
    return came, at
