"""The event to look at first when a check has failed, and the part of the run it lies in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labkit.checks.case import Failure, Got
from labkit.checks.from_timeline import rows_of_case
from labkit.checks.rank_side import CASE_KIND
from labkit.checks.verdict import Verdict
from labkit.timeline import Timeline
from labkit.timeline.columns import COLUMNS
from labkit.timeline.messages import SENDS, call_positions, is_call
from labkit.units import format_time

_BEYOND = 0.15
"""How much longer than all that ended a call is drawn that never did, of the length of the case."""


@dataclass(frozen=True)
class FirstLook:
    """Where to look.

    Attributes:
        timeline: What was recorded of the failed case, without the mark of the case itself.
        row: The event's row in it.
        event: Which event it is: "rank 1, recv from rank 0, 3.2 ms after the case began".
        reason: Why this one, as the end of a sentence.
    """

    timeline: Timeline
    row: int
    event: str
    reason: str


def find_first_look(recorded: Timeline | None, number: int, verdict: Verdict, got: Got) -> FirstLook | None:
    """Return the event to look at first, or None where the case recorded no call to look at.

    It is, in this order: the call of a problem on the wire that the verdict repeats; the call that raised; of those
    that hang the one that began first; the call the verdict is about. Of a wrong number there is none: which call it
    comes from nobody knows.

    Args:
        recorded: The timeline of the run.
        number: Which case of the run failed.
        verdict: What the judge said.
        got: What the case brought.
    """
    if recorded is None or verdict.passed:
        return None
    keep = rows_of_case(recorded, number) & (recorded.kind != CASE_KIND)
    part = _with_hanging_calls_drawn_out(recorded.select(keep))
    calls = np.flatnonzero(is_call(part) & (part.kind != "wait") & ~_of_the_check(part))
    if not len(calls):
        return None
    found = _of_a_problem(part, verdict) or _of_a_failure(part, calls, got) or _of_a_call(part, verdict)
    return found and FirstLook(part, found[0], _event(part, found[0]), found[1])


_Found = tuple[int, str]


def _of_a_problem(part: Timeline, verdict: Verdict) -> _Found | None:
    """Return the call of the problem on the wire that the verdict repeats."""
    told = verdict.problem
    if told is None:
        return None
    same = (each for each in part.problems if (each.kind, each.rank, each.text) == (told.kind, told.rank, told.text))
    row = next((each.row for each in same if each.row >= 0), -1)  # -1: it lies in another case of the run
    words = {
        "unmatched_send": "which nobody received.",
        "unmatched_recv": "for which nobody sent.",
        "changed_in_flight": "whose buffer was written while it was in flight.",
        "read_before_wait": "whose buffer was read before the message arrived.",
        "not_waited": "for which nobody waited.",
    }
    return (row, words.get(told.kind, "which the check speaks of.")) if row >= 0 else None


def _of_a_failure(part: Timeline, calls: npt.NDArray[np.int64], got: Got) -> _Found | None:
    """Return the call that raised, or the first of those that hang, or the last before its rank came to its end."""
    if not isinstance(got, Failure):
        return None
    table = part.tables.get("call")
    failed = [] if table is None else np.intersect1d(table["span"][table["failed"].astype(bool)], calls).tolist()
    if got.kind == "exception" and failed:
        return min(failed, key=lambda row: (part.rank[row] != got.rank, part.start_ns[row])), "which raised."
    hanging = np.intersect1d(_open(part), calls)
    if len(hanging) and got.kind in ("deadlock", "timeout"):
        row = int(hanging[np.argmin(part.start_ns[hanging])])
        return row, "the first of the calls that never ended." if len(hanging) > 1 else "the call that never ended."
    mine = [row for row in calls.tolist() if got.rank is None or part.rank[row] == got.rank]
    return (mine[-1], "the last call before it failed.") if mine else None


def _of_a_call(part: Timeline, verdict: Verdict) -> _Found | None:
    """Return the call that should not have been, or not so."""
    if verdict.call is None:
        return None
    wanted = (
        row
        for row, position in call_positions(part).items()
        if position == verdict.call and part.rank[row] == verdict.rank
    )
    row = next(wanted, None)
    return None if row is None else (row, "the call the check speaks of.")


def _of_the_check(part: Timeline) -> npt.NDArray[np.bool_]:
    """Return which rows are barriers of the check itself, which mark the wire: they come from no line of a learner.

    They have a group of their own, so that one that a learner's backward runs into, by a hook, is known by its group.
    """
    barrier = part.kind == "barrier"
    source, call = part.tables.get("source"), part.tables.get("call")
    if source is None or call is None:
        return np.zeros(len(part), dtype=np.bool_)
    told = np.zeros(len(part), dtype=np.bool_)
    told[source["span"][np.char.str_len(source["line"].astype(str)) > 0]] = True
    group = np.full(len(part), "", dtype=object)
    group[call["span"]] = call["group"].astype(str) if "group" in call else ""
    own = {name for name in group[barrier & ~told] if name}
    found: npt.NDArray[np.bool_] = barrier & (~told | np.isin(group.astype(str), sorted(own)))
    return found


def _event(part: Timeline, row: int) -> str:
    """Return "rank 1, recv from rank 0, 3.2 ms after the case began"."""
    kind, peer = str(part.kind[row]), int(part.peer[row])
    other = "" if peer < 0 else f" {'to' if kind in SENDS else 'from'} rank {peer}"
    after = format_time(int(part.start_ns[row] - part.start_ns.min()))
    return f"rank {part.rank[row]}, {kind}{other}, {after} after the case began"


def _open(part: Timeline) -> npt.NDArray[np.int64]:
    """Return the calls that were never seen to end."""
    table = part.tables.get("open")
    rows = np.empty(0, np.int64) if table is None else table["span"].astype(np.int64)
    calls: npt.NDArray[np.int64] = rows[is_call(part)[rows]] if len(rows) else rows
    return calls


def _with_hanging_calls_drawn_out(part: Timeline) -> Timeline:
    """Return the part with calls that never ended lasting beyond all others: recorded is when they began."""
    rows = _open(part)
    if not len(rows):
        return part
    ends = part.end_ns.copy()
    ends[rows] = int(part.end_ns.max()) + max(int(_BEYOND * part.makespan_ns), 1000)
    columns: dict[str, Any] = {name: getattr(part, name) for name in COLUMNS} | {"end_ns": ends}
    return Timeline(**columns, tables=part.tables, problems=part.problems, num_ranks=part.num_ranks)
