"""The timeline made of what ranks recorded.

A run may record millions of rows. They are taken rank by rank, so that what one rank did is still near when its next
column is made, and text is kept once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import compress, count
from operator import attrgetter
from typing import Any

import numpy as np

from labkit.simulator.record import OPEN, Noted, RankRecord, Row
from labkit.timeline import Timeline
from labkit.timeline.columns import Table
from labkit.timeline.span import Lane, Problem
from labkit.timeline.transfers import transfer_table

_SPANS = {
    "lane": np.int8, "start_ns": np.int64, "name": np.str_, "kind": np.str_, "bytes": np.int64, "peer": np.int32,
    "flow": np.int64,
}  # fmt: skip
_CALLS = {
    "group": np.str_, "group_size": np.int64, "number": np.int64, "tag": np.int64, "blocking": np.bool_,
    "failed": np.bool_, "thread": np.int64,
}  # fmt: skip


def assemble(records: Sequence[RankRecord], ends_ns: Sequence[int], problems: Sequence[Noted] = ()) -> Timeline:
    """Return the timeline of a run; what was never complete ends with the run and is listed in the table "open".

    Args:
        records: One per rank, in order.
        ends_ns: When each rank ended.
        problems: What the run as a whole found.
    """
    columns, moved = _Columns(), []
    ends_ns = _with_those_who_wait(records, ends_ns)
    answered: list[tuple[int, Row]] = []
    first = 0
    for record in records:
        rows = record.rows
        ends = _ends(rows, ends_ns[record.rank])
        lanes = map(attrgetter("lane"), rows)
        calls = [n for n, lane in enumerate(lanes) if lane == Lane.COMMUNICATION]
        waited = list(map(attrgetter("of"), rows))
        waits = _where(waited)
        place = dict(zip(map(id, map(rows.__getitem__, calls)), calls, strict=True)) if waits else {}
        columns.numbers("", "rank", [record.rank] * len(rows))
        columns.add("", _SPANS, rows)
        columns.numbers("", "end_ns", ends)
        columns.numbers("call", "span", calls, first)
        columns.add("call", _CALLS, [rows[n] for n in calls])
        columns.numbers("wait", "span", waits, first)
        columns.numbers("wait", "of", [place[id(waited[n])] for n in waits], first)
        columns.numbers("wait", "aside", [_is_aside(rows[n]) for n in waits])
        for table, column in (("source", "line"), ("phase", "phase"), ("stream", "stream")):
            texts = list(map(attrgetter(table), rows))
            columns.numbers(table, "span", _where(texts), first)
            columns.texts(table, column, filter(None, texts))
        columns.numbers("open", "span", [n for n, row in enumerate(rows) if row.end_ns == OPEN], first)
        moved += [(first + number, begin, end) for number, begin, end in _transfers(calls, rows, ends)]
        answered += [(first + n, rows[n]) for n in _where(list(map(attrgetter("answered"), rows)))]
        first += len(rows)

    noted = [*(each for record in records for each in record.problems), *problems]
    wanted = {id(p.row) for p in noted} | {id(row.answered) for _, row in answered}
    every = (row for record in records for row in record.rows)
    number_of = {id(row): number for number, row in enumerate(every) if id(row) in wanted} if wanted else {}
    spans = columns.table("", ("rank", *_SPANS, "end_ns"))
    tables = {
        "source": columns.table("source", ("span", "line")),
        "call": columns.table("call", ("span", *_CALLS)),
        "wait": columns.table("wait", ("span", "of", "aside")),
        "open": columns.table("open", ("span",)),
        **_clocks(len(records), ends_ns),
        "transfer": transfer_table(moved),
        "phase": columns.table("phase", ("span", "phase")),
    }
    streams = columns.table("stream", ("span", "stream"))
    if len(streams["span"]):
        tables["stream"] = streams
        tables["held"] = _held(records)
    tables["wait"]["aside"] = tables["wait"]["aside"].astype(np.bool_)
    if answered:
        by = np.array([number_of[id(row.answered)] for _, row in answered], dtype=np.int64)
        tables["reply"] = {"span": by, "of": np.array([number for number, _ in answered], dtype=np.int64)}
    return Timeline(
        **spans, tables=tables, num_ranks=len(records),
        problems=tuple(Problem(p.kind, p.rank, p.text, number_of[id(p.row)]) for p in noted),
    )  # fmt: skip


def _held(records: Sequence[RankRecord]) -> Table:
    """Return which spans began when a wait of their stream was over, for the end of which, and the time of the wait."""
    found, first = [], 0
    for record in records:
        wanted = {id(row) for held in record.held for row in (held.row, held.of)}
        place = {id(row): first + n for n, row in enumerate(record.rows) if id(row) in wanted} if wanted else {}
        ends = [(place.get(id(one.row)), place.get(id(one.of)), one.start_ns, one.end_ns) for one in record.held]
        found += [each for each in ends if None not in each]
        first += len(record.rows)
    columns = np.array(found, dtype=np.int64).reshape(-1, 4).T
    return dict(zip(("span", "of", "start_ns", "end_ns"), columns, strict=True))


def _ends(rows: Sequence[Row], rank_ends_ns: int) -> list[int]:
    """Return when each row ended; what is open ended with its rank."""
    ends = list(map(attrgetter("end_ns"), rows))
    if OPEN in ends:
        return [max(rank_ends_ns, row.start_ns) if end == OPEN else end for end, row in zip(ends, rows, strict=True)]
    return ends


def _where(values: Iterable[object]) -> list[int]:
    """Return the places of what is neither None nor empty."""
    return list(compress(count(), values))


def _with_those_who_wait(records: Sequence[RankRecord], ends_ns: Sequence[int]) -> list[int]:
    """Return when each rank ended; one that stood in a call to the last was there as long as anybody."""
    waited = [
        OPEN in map(attrgetter("end_ns"), record.rows)
        and any(row.end_ns == OPEN and (row.blocking or row.of) for row in record.rows)
        for record in records
    ]
    return [max(ends_ns) if waits else end for waits, end in zip(waited, ends_ns, strict=True)]


class _Numbers(dict[str, int]):
    """Numbers texts in the order in which they are first asked for."""

    def __missing__(self, text: str) -> int:
        self[text] = number = len(self)
        return number


class _Columns:
    """Columns of tables, as they grow."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], list[Any]] = defaultdict(list)
        self._known: dict[tuple[str, str], _Numbers] = {}

    def add(self, table: str, wanted: dict[str, Any], rows: Sequence[Row]) -> None:
        """Add these attributes of rows."""
        for name, dtype in wanted.items():
            values = map(attrgetter(name), rows)
            if dtype is np.str_:
                self.texts(table, name, values)
            else:
                self._parts[table, name].append(np.fromiter(values, dtype, len(rows)))

    def numbers(self, table: str, name: str, values: Sequence[int], more: int = 0) -> None:
        """Add whole numbers, each so much more."""
        self._parts[table, name].append(np.fromiter(values, np.int64, len(values)) + more)

    def texts(self, table: str, name: str, values: Iterable[str]) -> None:
        """Add texts, of which many are the same."""
        known = self._known.setdefault((table, name), _Numbers())
        self._parts[table, name].append(np.fromiter(map(known.__getitem__, values), np.int64))

    def table(self, table: str, names: Sequence[str]) -> Table:
        """Return a table of these columns."""
        return {name: self._column(table, name) for name in names}

    def _column(self, table: str, name: str) -> Any:
        parts = self._parts[table, name]
        whole = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        known = self._known.get((table, name))
        return whole if known is None else np.array(list(known), dtype=np.str_)[whole]


def _clocks(num_ranks: int, ends_ns: Sequence[int]) -> dict[str, Table]:
    """Return the tables "clock" and "lifetime"."""
    return {
        "clock": {
            "rank": np.arange(num_ranks, dtype=np.int64),
            "method": np.array(["virtual time"] * num_ranks, dtype=np.str_),
            "err_ns": np.zeros(num_ranks, dtype=np.int64),
            "origin_ns": np.zeros(num_ranks, dtype=np.int64),
        },
        "lifetime": {
            "rank": np.arange(num_ranks, dtype=np.int64),
            "start_ns": np.zeros(num_ranks, dtype=np.int64),
            "end_ns": np.array(ends_ns, dtype=np.int64),
            "closed": np.ones(num_ranks, dtype=np.bool_),
        },
    }


def _is_aside(wait: Row) -> bool:
    return wait.of is not None and wait.of.thread != wait.thread


def _transfers(calls: Sequence[int], rows: Sequence[Row], ends: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (row, begin, end) of calls that were blocked for some of their time; of one still open nothing moved."""
    found = []
    for number in calls:
        row, end_ns = rows[number], ends[number]
        moves = row.moves if row.end_ns != OPEN else tuple((begin, min(end, end_ns)) for begin, end in row.moves)
        if row.end_ns == OPEN and not moves:
            moves = ((end_ns, end_ns),)
        if moves and moves != ((row.start_ns, end_ns),):
            found += [(number, min(max(begin, row.start_ns), end_ns), min(end, end_ns)) for begin, end in moves]
    return found
