"""The critical path: the chain of work and communication across ranks that decided when the run ended.

Read backwards from the last end, as Scalasca replays a trace in reverse. A rank's program runs until it joins a call:
a blocking call, or the wait() for one. Such a join ended when the call did, and the call began to move when the last of
its ranks came to it: the sender of a receive, the receiver of a send that had to wait, the latest rank of a collective.
There the path changes ranks; where this rank itself came last, it stays and goes through the call. Threads of a rank
are taken as one program.

A remote call leads to the rank that served it, if a flow joins both. From the call's end back to the serving's end is
the reply; the serving, and what it joined itself, is that rank's program; from its begin back to when the call was made
is the request. A serving that began as another one ended stood in line if its call had been made by then: the path goes
on in that other one. An answer left to a later serving (async_execution; the table "reply") comes from there. A call
that ended before its serving did (a timeout) leads nowhere, and one that nobody waited for is on no path.

Source: Böhme, Geimer, Wolf, Arnold 2010, "Identifying the root causes of wait states in large-scale parallel
applications"; Böhme, de Supinski, Geimer, Schulz, Wolf 2012, "Scalable critical-path based performance analysis".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from labkit.timeline.distinct import distinct_rows
from labkit.timeline.intervals import covered_before
from labkit.timeline.messages import RECEIVES, REMOTE_CALLS, SENDS, SERVED, is_call
from labkit.timeline.metrics import intervals_of_ranks
from labkit.timeline.servings import Servings
from labkit.timeline.span import Lane
from labkit.timeline.timeline import Timeline
from labkit.units import format_time

_EVER = -(1 << 63)


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
class _Joins:
    """Where a rank's program waited for a call, by when it went on: those times, and the calls' begins and rows."""

    end_ns: list[int]
    start_ns: list[int]
    row: list[int]


class _Partners:
    """For each call those without which it could not end: a message's other end, a collective's other ranks."""

    def __init__(self, timeline: Timeline) -> None:
        sends = timeline.flow >= 0
        messages, codes = np.unique(timeline.flow[sends], return_inverse=True)
        self._code = np.full(len(timeline), -1, dtype=np.int64)
        self._code[sends] = codes
        table = timeline.tables.get("call")
        if table is not None:
            kind = timeline.kind[table["span"]]
            joint = ~np.isin(kind, (*SENDS, *RECEIVES, *REMOTE_CALLS, SERVED, "span"))
            _, codes = distinct_rows([column[joint] for column in (table["group"], table["number"], kind)])
            self._code[table["span"][joint]] = len(messages) + codes
        self._order = np.argsort(self._code, kind="stable")
        self._first = np.searchsorted(self._code[self._order], np.arange(self._code.max(initial=-1) + 2))

    def of(self, row: int) -> list[int]:
        """Return them as rows of the timeline, the call itself among them; [] if it has none."""
        code = self._code[row]
        return [] if code < 0 else self._order[self._first[code] : self._first[code + 1]].tolist()


def critical_path(timeline: Timeline) -> list[Step]:
    """Return the critical path from the first piece to the last, which ends when the timeline does; [] if it is empty.

    Pieces of no length are left out.
    """
    if not len(timeline):
        return []
    last = int(np.lexsort((timeline.lane != Lane.COMMUNICATION, -timeline.end_ns))[0])
    joins = _joins(timeline, last)
    left = [len(of_rank.row) for of_rank in joins]
    partners, servings = _Partners(timeline), Servings(timeline)
    begins = np.full(timeline.num_ranks, timeline.end_ns.max(), dtype=np.int64)
    np.minimum.at(begins, timeline.rank, timeline.start_ns)
    first = begins.tolist()
    rank, now = int(timeline.rank[last]), int(timeline.end_ns[last])
    serving = servings.around(rank, int(timeline.start_ns[last]), now)  # what the path is inside of, -1 for none
    found: list[Step] = []
    while True:
        mine = joins[rank]
        begin = servings.start_ns[serving] if serving >= 0 else _EVER
        place = bisect_right(mine.end_ns, now, hi=left[rank]) - 1
        while place >= 0 and mine.start_ns[place] < begin < mine.end_ns[place]:
            place -= 1  # of another thread
        if place >= 0 and mine.end_ns[place] > begin:
            left[rank] = place
            end, row = mine.end_ns[place], mine.row[place]
            found.append(Step(end, now, rank, rank, "program"))
            answering = servings.answering(row, end)
            if answering >= 0:
                came, at = servings.rank[answering], min(servings.end_ns[answering], end)
            else:
                came, at = _last_to_come(timeline, row, rank, mine.start_ns[place], end, partners)
                answering = serving if came == rank else servings.around(came, at, end)
            found.append(Step(at, end, came, rank, "call", row))
            rank, now, serving = came, at, answering
        elif serving >= 0:
            found.append(Step(begin, now, rank, rank, "program"))
            row, came, called = servings.call[serving], servings.caller[serving], servings.called_ns[serving]
            ahead = servings.ahead_of(serving)
            if ahead >= 0 and called < begin:
                now, serving = begin, ahead
                continue
            found.append(Step(called, begin, came, rank, "call", row))
            # A call that took no time leads out of any serving, lest it go round in circles.
            serving = servings.around(came, called, int(timeline.end_ns[row])) if called < begin else -1
            rank, now = came, called
        else:
            found.append(Step(min(first[rank], now), now, rank, rank, "program"))
            break
    return [step for step in reversed(found) if step.end_ns > step.start_ns]


def in_words(timeline: Timeline, steps: Sequence[Step]) -> str:
    """Return what the path consists of, in a sentence."""
    length = sum(step.end_ns - step.start_ns for step in steps)
    if not length:
        return "No critical path: nothing was recorded."
    program = [(step.rank, step.start_ns, step.end_ns) for step in steps if step.kind == "program"]
    rank, begin, end = np.array(program, dtype=np.int64).reshape(-1, 3).T
    compute = 0
    for number, computing in enumerate(intervals_of_ranks(timeline, [Lane.COMPUTE])):
        mine = rank == number
        compute += int((covered_before(computing, end[mine]) - covered_before(computing, begin[mine])).sum())
    communicate = sum(step.end_ns - step.start_ns for step in steps if step.kind == "call")
    changes = sum(step.from_rank != step.rank for step in steps)
    ranks = len({step.rank for step in steps})
    return (
        f"Critical path, {format_time(length)}: computing {compute / length:.0%}, communicating "
        f"{communicate / length:.0%}, neither {1 - (compute + communicate) / length:.0%}; it visits {ranks} "
        f"rank{'s' * (ranks != 1)} and changes ranks {changes} time{'s' * (changes != 1)}."
    ).replace("%", " %")


def _joins(timeline: Timeline, last: int) -> list[_Joins]:
    """Return for each rank where its program waited for a call."""
    call = is_call(timeline)
    blocking = call.copy()
    table = timeline.tables.get("call")
    if table is not None:
        blocking[:] = False
        blocking[table["span"][table["blocking"].astype(bool)]] = True
    if call[last]:
        blocking[last] = True  # the last to end is what the run waited for, whoever did
    where = of = np.flatnonzero(blocking)
    waits = timeline.tables.get("wait")
    if waits is not None:
        late = timeline.end_ns[waits["of"]] > timeline.start_ns[waits["span"]]  # others were complete when asked for
        where, of = np.concatenate((where, waits["span"][late])), np.concatenate((of, waits["of"][late]))
    rank, end, start = timeline.rank[where], timeline.end_ns[where], timeline.start_ns[of]
    order = np.lexsort((where, start, timeline.end_ns[of], end, rank))  # of several that were waited for, the last
    parts = np.split(order, np.searchsorted(rank[order], np.arange(1, timeline.num_ranks)))
    return [_Joins(end[part].tolist(), start[part].tolist(), of[part].tolist()) for part in parts]


def _last_to_come(
    timeline: Timeline, call: int, rank: int, start_ns: int, end_ns: int, partners: _Partners
) -> tuple[int, int]:
    """Return the rank that came to the call last, and when; the rank itself where no other one came later.

    A send that ended before its receive began did not wait for it.
    """
    came, at = rank, start_ns
    if str(timeline.kind[call]) in REMOTE_CALLS:
        return came, at
    for row in partners.of(call):
        begin = int(timeline.start_ns[row])
        if at < begin <= end_ns and row != call:
            came, at = int(timeline.rank[row]), begin
    return came, at
