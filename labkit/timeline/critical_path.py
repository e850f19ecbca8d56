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
from labkit.units import format_percent, format_time

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
    named = timeline.lane == Lane.REGION  # names decide nothing
    if named.all():
        return []
    last = int(np.lexsort((timeline.lane != Lane.COMMUNICATION, -timeline.end_ns, named))[0])
    walk = _Walk(timeline, last)
    while walk.goes_on():
        pass
    return [step for step in reversed(walk.steps) if step.end_ns > step.start_ns]


class _Walk:
    """A walk through a timeline, backwards along its critical path.

    Attributes:
        rank: Where the walk is.
        now: When.
        serving: Inside which serving of a remote call, -1 for none.
        steps: What it passed, the last piece first; some have no length.
    """

    def __init__(self, timeline: Timeline, last: int) -> None:
        self._timeline = timeline
        self._joins = _joins(timeline, last)
        self._left = [len(of_rank.row) for of_rank in self._joins]  # of each rank those not passed yet
        self._partners, self._servings = _Partners(timeline), Servings(timeline)
        self.rank, self.now = int(timeline.rank[last]), int(timeline.end_ns[last])
        self.serving = self._servings.around(self.rank, int(timeline.start_ns[last]), self.now)
        self.steps: list[Step] = []

    def goes_on(self) -> bool:
        """Go back to where this rank last waited for a call and through it; return False where its program began."""
        begin = self._servings.start_ns[self.serving] if self.serving >= 0 else _EVER
        join = self._last_join(begin)
        if join >= 0:
            self._through_call(join)
        elif self.serving >= 0:
            self._out_of_serving(begin)
        else:
            here = (self._timeline.rank == self.rank) & (self._timeline.lane != Lane.REGION)
            mine = self._timeline.start_ns[here]
            self._program_since(min(int(mine.min(initial=self.now)), self.now))
            return False
        return True

    def _last_join(self, begin: int) -> int:
        """Return the last call this rank waited for by now, but after that time; -1 for none."""
        mine = self._joins[self.rank]
        place = bisect_right(mine.end_ns, self.now, hi=self._left[self.rank]) - 1
        while place >= 0 and mine.start_ns[place] < begin < mine.end_ns[place]:
            place -= 1  # of another thread
        return place if place >= 0 and mine.end_ns[place] > begin else -1

    def _through_call(self, join: int) -> None:
        """Go to the serving that answered the call, else to the rank that came to it last."""
        mine, servings = self._joins[self.rank], self._servings
        self._left[self.rank] = join
        start, end, row = mine.start_ns[join], mine.end_ns[join], mine.row[join]
        self._program_since(end)
        answering = servings.answering(row, end)
        if answering >= 0:
            self._call_since(min(servings.end_ns[answering], end), servings.rank[answering], row)
            self.serving = answering
            return
        came, at = _last_to_come(self._timeline, row, self.rank, start, end, self._partners)
        if came != self.rank:
            self.serving = servings.around(came, at, end)
        self._call_since(at, came, row)

    def _out_of_serving(self, begin: int) -> None:
        """Go to the serving that this one stood in line for, else to who called it."""
        number, servings = self.serving, self._servings
        self._program_since(begin)
        called, ahead = servings.called_ns[number], servings.ahead_of(number)
        if ahead >= 0 and called < begin:
            self.serving = ahead
            return
        caller, row = servings.caller[number], servings.call[number]
        self._call_since(called, caller, row)
        # A call that took no time leads out of any serving, lest it go round in circles.
        self.serving = servings.around(caller, called, int(self._timeline.end_ns[row])) if called < begin else -1

    def _program_since(self, time: int) -> None:
        self.steps.append(Step(time, self.now, self.rank, self.rank, "program"))
        self.now = time

    def _call_since(self, time: int, rank: int, row: int) -> None:
        """Go through a call, back to a rank at a time."""
        self.steps.append(Step(time, self.now, rank, self.rank, "call", row))
        self.rank, self.now = rank, time


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
    calls = sum(step.end_ns - step.start_ns for step in steps if step.kind == "call")
    communicate = calls - _blocked_ns(timeline, [step for step in steps if step.kind == "call"])
    changes = sum(step.from_rank != step.rank for step in steps)
    ranks = len({step.rank for step in steps})
    blocked = (calls - communicate) / length
    still = f"blocked {format_percent(blocked)}, " if blocked >= 0.005 else ""
    return (
        f"Critical path, {format_time(length)}: computing {format_percent(compute / length)}, communicating "
        f"{format_percent(communicate / length)}, {still}neither {format_percent(1 - (compute + calls) / length)}; "
        f"it visits {ranks} rank{'s' * (ranks != 1)} and changes ranks {changes} time{'s' * (changes != 1)}."
    )


def _blocked_ns(timeline: Timeline, calls: Sequence[Step]) -> int:
    """Return for how long nothing moved of the calls that these pieces of the path go through."""
    table = timeline.transfers
    moves: dict[int, list[tuple[int, int]]] = {}
    for row, begin, end in zip(*(table[key].tolist() for key in ("span", "start_ns", "end_ns")), strict=True):
        moves.setdefault(row, []).append((begin, end))
    blocked = 0
    for step in calls:
        if step.row in moves:
            moved = sum(max(min(end, step.end_ns) - max(begin, step.start_ns), 0) for begin, end in moves[step.row])
            blocked += step.end_ns - step.start_ns - moved
    return blocked


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
