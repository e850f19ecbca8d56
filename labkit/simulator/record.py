"""What each rank did in virtual time, and the timeline made of it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from labkit.cells import cell_name
from labkit.simulator.work_done import WorkDone
from labkit.timeline import Timeline
from labkit.timeline.columns import Table
from labkit.timeline.span import Lane, Problem
from labkit.timeline.transfers import transfer_table
from labkit.torch_port.group_tables import entry_codes

if TYPE_CHECKING:
    from labkit.simulator.memory import RankMemory

JOINED = "operators"
"""Name of a span that stands for several operators."""

_OPEN = -1
_LABKIT = str(Path(__file__).parents[1]) + os.sep
_FOREIGN = (
    _LABKIT, str(Path(torch.__file__).parent) + os.sep, str(Path(concurrent.futures.__file__).parent) + os.sep,
    "<frozen", contextlib.__file__, threading.__file__, queue.__file__,
)  # fmt: skip


@dataclass(slots=True)
class Row:
    """One span while it is being recorded; end_ns is -1 until it is known, thread 0 is the rank's own.

    ``of`` is the call a wait was for, ``answered`` the serving that answered a remote call in place of its own.
    ``moves`` is when bytes of a call moved, ``phase`` that of the training step (labkit.timeline.phases).
    """

    lane: Lane
    start_ns: int
    end_ns: int
    name: str
    kind: str
    bytes: int = 0
    peer: int = -1
    flow: int = -1
    tag: int = 0
    group: str = ""
    group_size: int = 0
    number: int = 0
    source: str = ""
    blocking: bool = False
    failed: bool = False
    waited: bool = False
    of: Row | None = None
    answered: Row | None = None
    thread: int = 0
    moves: tuple[tuple[int, int], ...] = ()
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Noted:
    """A problem while the run is recorded: kind, rank and text as in Problem, and the span it speaks of."""

    kind: str
    rank: int
    text: str
    row: Row


@dataclass
class RankRecord:
    """The spans of one rank, in the order it began them, what its memory held, and how much it computed."""

    rank: int
    rows: list[Row] = field(default_factory=list)
    problems: list[Noted] = field(default_factory=list)
    memory: RankMemory | None = None
    work: WorkDone = field(default_factory=WorkDone)

    def add(self, row: Row) -> Row:
        """Return the row, now part of the record."""
        self.rows.append(row)
        return row

    def joinable(self, now_ns: int, phase: str = "") -> Row | None:
        """Return the span of operators of this phase that ends now, if it is the last one."""
        last = self.rows[-1] if self.rows else None
        fits = last is not None and last.name == JOINED and last.end_ns == now_ns and last.thread == self.number
        fits = fits and last is not None and last.phase == phase
        return last if fits else None

    @property
    def number(self) -> int:
        """The thread's number, 0 for the rank's own."""
        return 0


@dataclass
class ThreadRecord(RankRecord):
    """What one more thread of a rank did, written into the record of the rank."""

    thread: int = 0

    @classmethod
    def of(cls, record: RankRecord, thread: int) -> ThreadRecord:
        """Return the record of a rank as its thread of this number writes it."""
        return cls(**{part.name: getattr(record, part.name) for part in fields(RankRecord)}, thread=thread)

    @property
    def number(self) -> int:
        """The thread's number."""
        return self.thread

    def add(self, row: Row) -> Row:
        """Return the row, now part of the rank's record."""
        row.thread = self.thread
        return super().add(row)


class Sources:
    """Finds the learner's line that a call came from."""

    def __init__(self) -> None:
        self._entries = entry_codes()
        self._is_foreign: dict[int, bool] = {}
        self._seen: list[CodeType] = []  # keeps the ids from being used again
        self._texts: dict[tuple[int, int], str] = {}

    def find(self, frame: FrameType | None) -> tuple[str, str]:
        """Return file:line of the first frame outside torch and labkit ("" for none), and "send" or "recv" on the way.

        Args:
            frame: Where to start.
        """
        entry = ""
        while frame is not None:
            code = frame.f_code
            identity = id(code)
            foreign = self._is_foreign.get(identity)
            if foreign is None:
                self._seen.append(code)
                foreign = self._is_foreign[identity] = code.co_filename.startswith(_FOREIGN)
            if not foreign:
                key = (identity, frame.f_lineno)
                text = self._texts.get(key)
                if text is None:
                    text = self._texts[key] = f"{code.co_filename}:{frame.f_lineno}"
                return text, entry
            if identity in self._entries:
                entry = self._entries[identity]
            frame = frame.f_back
        return "", entry


def short(source: str) -> str:
    """Return file:line as reports show it: "lesson.py, line 12", "Cell In[5], line 3", "" for no source."""
    path, _, line = source.rpartition(":")
    name = cell_name(path) or path.replace(chr(92), "/").rsplit("/", 1)[-1]
    return f"{name}, line {line}" if source else ""


def at(source: str) -> str:
    """Return " (lesson.py, line 12)", or "" where the line is not known."""
    return f" ({short(source)})" if source else ""


def assemble(records: Sequence[RankRecord], ends_ns: Sequence[int], problems: Sequence[Noted] = ()) -> Timeline:
    """Return the timeline of a run; what was never complete ends with its rank and is listed in the table "open".

    Args:
        records: One per rank, in order.
        ends_ns: When each rank ended.
        problems: What the run as a whole found.
    """
    rows = [(record.rank, row) for record in records for row in record.rows]
    number_of = {id(row): number for number, (_, row) in enumerate(rows)}
    spans = [row for _, row in rows]
    ranks = np.array([rank for rank, _ in rows], dtype=np.int64)
    last = [max(ends_ns[rank], row.start_ns) for rank, row in rows]
    ends = [end if row.end_ns == _OPEN else row.end_ns for end, (_, row) in zip(last, rows, strict=True)]
    calls = [n for n, row in enumerate(spans) if row.lane == Lane.COMMUNICATION]
    sourced = [n for n, row in enumerate(spans) if row.source]
    waits = [n for n, row in enumerate(spans) if row.of is not None]

    def column(of: Callable[[Row], Any], dtype: Any, numbers: Sequence[int] | None = None) -> Any:
        chosen = spans if numbers is None else [spans[number] for number in numbers]
        return np.array([of(row) for row in chosen], dtype=dtype)

    left = [n for n, row in enumerate(spans) if row.answered is not None]
    num_ranks = len(records)
    noted = [*(each for record in records for each in record.problems), *problems]
    tables = {
        "source": {"span": np.array(sourced, dtype=np.int64), "line": column(lambda r: r.source, np.str_, sourced)},
        "call": {
            "span": np.array(calls, dtype=np.int64),
            "group": column(lambda r: r.group, np.str_, calls),
            "group_size": column(lambda r: r.group_size, np.int64, calls),
            "number": column(lambda r: r.number, np.int64, calls),
            "tag": column(lambda r: r.tag, np.int64, calls),
            "blocking": column(lambda r: r.blocking, np.bool_, calls),
            "failed": column(lambda r: r.failed, np.bool_, calls),
            "thread": column(lambda r: r.thread, np.int64, calls),
        },
        "wait": {
            "span": np.array(waits, dtype=np.int64),
            "of": np.array([number_of[id(spans[n].of)] for n in waits], dtype=np.int64),
            "aside": column(lambda r: r.of is not None and r.of.thread != r.thread, np.bool_, waits),
        },
        "open": {"span": np.array([n for n, row in enumerate(spans) if row.end_ns == _OPEN], dtype=np.int64)},
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
    tables["transfer"] = _transfers(calls, spans, ends)
    phased = [n for n, row in enumerate(spans) if row.phase]
    tables["phase"] = {"span": np.array(phased, dtype=np.int64), "phase": column(lambda r: r.phase, np.str_, phased)}
    if left:
        by = column(lambda r: number_of[id(r.answered)], np.int64, left)
        tables["reply"] = {"span": by, "of": np.array(left, dtype=np.int64)}
    return Timeline(
        rank=ranks, lane=column(lambda r: int(r.lane), np.int8), start_ns=column(lambda r: r.start_ns, np.int64),
        end_ns=np.array(ends, dtype=np.int64), name=column(lambda r: r.name, np.str_),
        kind=column(lambda r: r.kind, np.str_), bytes=column(lambda r: r.bytes, np.int64),
        peer=column(lambda r: r.peer, np.int32), flow=column(lambda r: r.flow, np.int64), tables=tables,
        problems=tuple(Problem(p.kind, p.rank, p.text, number_of[id(p.row)]) for p in noted), num_ranks=num_ranks,
    )  # fmt: skip


def _transfers(calls: Sequence[int], spans: Sequence[Row], ends: Sequence[int]) -> Table:
    """Return the table "transfer": calls that were blocked for some of their time; of one still open nothing moved."""
    found = []
    for number in calls:
        row, end_ns = spans[number], ends[number]
        moves = row.moves if row.end_ns != _OPEN else tuple((begin, min(end, end_ns)) for begin, end in row.moves)
        if row.end_ns == _OPEN and not moves:
            moves = ((end_ns, end_ns),)
        if moves and moves != ((row.start_ns, end_ns),):
            found += [(number, min(max(begin, row.start_ns), end_ns), min(end, end_ns)) for begin, end in moves]
    return transfer_table(found)
