"""When the bytes of each call moved. For the rest of its time a call is blocked: the other side has not come, the port
is taken, the last member has not entered.

The table "transfer" (span, start_ns, end_ns, err_ns) has the calls that were blocked for some of their time: they moved
in the intervals of their rows and at no other time. A call without a row moved from its begin to its end, or nobody
knows better. err_ns is by how much a begin may be off, because the clocks of two ranks are.

A virtual cluster writes down what it did. Of real calls it follows from those they met, on the clock the ranks share: a
message moves once both ends are posted, a collective once its last member has entered, a remote call except while it is
served. A call that ended before the other side came did not wait for it: the message lay in a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from labkit.timeline.cached_answers import cached_with_timeline
from labkit.timeline.columns import Table
from labkit.timeline.distinct import distinct_rows
from labkit.timeline.messages import RECEIVES, REMOTE_CALLS, SENDS, SERVED, is_call, of_kind

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline

_MESSAGES = (*SENDS, *RECEIVES)


@dataclass(frozen=True)
class Moving:
    """Intervals in which calls moved bytes, in order of the calls' rows.

    Attributes:
        row: The call's row in the timeline.
        start_ns: Begin.
        end_ns: End.
        err_ns: By how much the begin may be off.
    """

    row: npt.NDArray[np.int64]
    start_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]
    err_ns: npt.NDArray[np.int64]


@cached_with_timeline
def moving(timeline: Timeline) -> Moving:
    """Return when the calls of a timeline moved bytes; intervals of no length are left out."""
    table = timeline.transfers
    if not len(table["span"]):
        every = np.flatnonzero(is_call(timeline))
        return Moving(every, timeline.start_ns[every], timeline.end_ns[every], np.zeros(len(every), dtype=np.int64))
    listed = np.zeros(len(timeline), dtype=bool)
    listed[table["span"]] = True
    whole = np.flatnonzero(is_call(timeline) & ~listed)
    kept = table["end_ns"] > table["start_ns"]
    row = np.concatenate((whole, table["span"][kept]))
    start = np.concatenate((timeline.start_ns[whole], table["start_ns"][kept]))
    end = np.concatenate((timeline.end_ns[whole], table["end_ns"][kept]))
    error = np.concatenate((np.zeros(len(whole), dtype=np.int64), table["err_ns"][kept]))
    order = np.lexsort((start, row))
    return Moving(row[order], start[order], end[order], error[order])


def transfers(timeline: Timeline) -> Table:
    """Return the table "transfer": what was recorded, else what follows from calls that belong together."""
    table = timeline.tables.get("transfer")
    return derived(timeline) if table is None else table


def transfer_table(found: Sequence[tuple[int, int, int]], err_ns: Sequence[int] = ()) -> Table:
    """Return the table "transfer" from (row, begin, end) of each interval."""
    table = np.array(found, dtype=np.int64).reshape(-1, 3)
    error = np.array(err_ns, dtype=np.int64) if len(err_ns) else np.zeros(len(table), dtype=np.int64)
    order = np.lexsort((table[:, 1], table[:, 0]))
    columns = table[order].T
    return {"span": columns[0], "start_ns": columns[1], "end_ns": columns[2], "err_ns": error[order]}


def derived(timeline: Timeline) -> Table:
    """Return the table "transfer" that follows from which calls met and when each was made."""
    if "call" not in timeline.tables and not (timeline.flow >= 0).any():
        return transfer_table([])  # nothing tells which calls met
    came, by, alone = _met(timeline)
    served = _served(timeline)
    error = _clock_errors(timeline)
    late = np.flatnonzero((came > timeline.start_ns) & is_call(timeline))
    here, there = timeline.rank[late], by[late]
    doubt = np.where(here == there, 0, error[here] + error[there])
    told = came[late] - timeline.start_ns[late] > doubt  # less than the clocks may be off is not told from nothing
    late, doubt = late[told], doubt[told]
    found = [*zip(late.tolist(), came[late].tolist(), timeline.end_ns[late].tolist(), strict=True)]
    errors = doubt.tolist()
    for row, *moves in served:
        found += [(row, begin, end) for begin, end in moves]
        errors += [0] * len(moves)
    for row in alone:
        end = int(timeline.end_ns[row])
        found.append((row, end, end))
        errors.append(0)
    return transfer_table(found, errors)


def last_to_come(timeline: Timeline) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for each span when all its call needs had come, its begin at the earliest, and which rank came last."""
    came, by, _ = _met(timeline)
    return came, by


def _met(timeline: Timeline) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], list[int]]:
    """Return when and with which rank each call had all it needs, and the calls that some member never joined."""
    came, by = timeline.start_ns.copy(), timeline.rank.astype(np.int64)
    _meet_messages(timeline, came, by)
    return came, by, _meet_collectives(timeline, came, by)


def _meet_messages(timeline: Timeline, came: npt.NDArray[np.int64], by: npt.NDArray[np.int64]) -> None:
    """Write down when the other end of each message was posted, where its call was still there, and by whom."""
    rows = np.flatnonzero((timeline.flow >= 0) & of_kind(timeline, *_MESSAGES))
    sends = np.isin(timeline.kind[rows], SENDS)
    _, of_send, of_receive = np.intersect1d(
        timeline.flow[rows[sends]], timeline.flow[rows[~sends]], return_indices=True
    )
    send, receive = rows[sends][of_send], rows[~sends][of_receive]
    for mine, other in ((send, receive), (receive, send)):
        begin = timeline.start_ns[other]
        waits = (begin > timeline.start_ns[mine]) & (begin <= timeline.end_ns[mine])
        came[mine[waits]], by[mine[waits]] = begin[waits], timeline.rank[other[waits]]


def _meet_collectives(timeline: Timeline, came: npt.NDArray[np.int64], by: npt.NDArray[np.int64]) -> list[int]:
    """Write down when the last member entered each collective, and who; return calls that some member never joined."""
    table = timeline.tables.get("call")
    if table is None or "group" not in table or not len(table["span"]):
        return []
    joint = ~np.isin(timeline.kind[table["span"]], (*_MESSAGES, *REMOTE_CALLS, SERVED, "span"))
    rows = table["span"][joint]
    if not len(rows):
        return []
    keys = [table["group"][joint], table["number"][joint], timeline.kind[rows]]
    _, code = distinct_rows(keys)
    order = np.lexsort((timeline.start_ns[rows], code))
    rows, code = rows[order], code[order]
    first = np.flatnonzero(np.concatenate(([True], code[1:] != code[:-1])))
    count = np.diff(np.append(first, len(code)))
    last = np.repeat(rows[first + count - 1], count)
    begin = timeline.start_ns[last]
    waits = (begin > timeline.start_ns[rows]) & (begin <= timeline.end_ns[rows])
    came[rows[waits]], by[rows[waits]] = begin[waits], timeline.rank[last[waits]]
    for place in np.flatnonzero(begin > timeline.end_ns[rows]).tolist():  # it left before the last one came
        row = int(rows[place])
        others = rows[code == code[place]]
        there = others[timeline.start_ns[others] <= timeline.end_ns[row]]
        latest = there[int(timeline.start_ns[there].argmax())]
        came[row], by[row] = timeline.start_ns[latest], timeline.rank[latest]
    unfinished = timeline.tables.get("open")
    if unfinished is None or "group_size" not in table:
        return []
    size = table["group_size"][joint][order]
    missing = np.repeat(count, count) < size
    return sorted(set(rows[missing].tolist()) & set(unfinished["span"].tolist())) + _never_met(timeline, unfinished)


def _never_met(timeline: Timeline, unfinished: Table) -> list[int]:
    """Return the messages whose other end was never posted, among calls that never ended."""
    rows = unfinished["span"]
    lost = (timeline.flow[rows] < 0) & np.isin(timeline.kind[rows], _MESSAGES)
    found: list[int] = rows[lost].tolist()
    return found


def _served(timeline: Timeline) -> list[tuple[Any, ...]]:
    """Return for each remote call whose serving is known its row, and when the request and the reply moved."""
    serving = np.flatnonzero(of_kind(timeline, SERVED) & (timeline.flow >= 0))
    if not len(serving):
        return []
    serving_of = dict(zip(timeline.flow[serving].tolist(), serving.tolist(), strict=True))
    reply = timeline.tables.get("reply", {"span": np.empty(0, np.int64), "of": np.empty(0, np.int64)})
    answer_of = dict(zip(reply["of"].tolist(), reply["span"].tolist(), strict=True))
    found: list[tuple[Any, ...]] = []
    for call in np.flatnonzero(of_kind(timeline, *REMOTE_CALLS) & (timeline.flow >= 0)).tolist():
        row = serving_of.get(int(timeline.flow[call]))
        if row is None:
            continue
        start, end, begins = int(timeline.start_ns[call]), int(timeline.end_ns[call]), int(timeline.start_ns[row])
        ends = int(timeline.end_ns[answer_of.get(call, row)])
        if start <= begins <= end:
            found.append((call, (start, begins), (min(max(ends, begins), end), end)))
    return found


def _clock_errors(timeline: Timeline) -> npt.NDArray[np.int64]:
    """Return by how much each rank's clock may be off."""
    error = np.zeros(max(timeline.num_ranks, 1), dtype=np.int64)
    clock = timeline.tables.get("clock", {})
    if "err_ns" in clock:
        error[clock["rank"]] = clock["err_ns"]
    return error
