"""What each rank did in virtual time."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing.synchronize
import os
import queue
import threading
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, NamedTuple

import torch

from labkit.cells import place
from labkit.simulator.work_done import WorkDone
from labkit.timeline.span import Lane
from labkit.torch_port.group_tables import entry_codes

if TYPE_CHECKING:
    from labkit.simulator.memory import RankMemory

JOINED = "operators"
"""Name of a span that stands for several operators."""

_LEARNERS = "the learner's"
OPEN = -1
"""Where a span ends as long as that is not known."""
_LABKIT = str(Path(__file__).parents[1]) + os.sep
AUDITED = _LABKIT + "wrong_runs.py"
"""A program that lessons audit: its lines are a learner's, wherever labkit is installed."""
_FOREIGN = (
    _LABKIT, str(Path(torch.__file__).parent) + os.sep, str(Path(concurrent.futures.__file__).parent) + os.sep,
    "<frozen", contextlib.__file__, threading.__file__, queue.__file__, multiprocessing.synchronize.__file__,
)  # fmt: skip


@dataclass(slots=True)
class Row:
    """One span while it is being recorded; end_ns is -1 until it is known, thread 0 is the rank's own.

    ``of`` is the call a wait was for, ``answered`` the serving that answered a remote call in place of its own.
    ``moves`` is when bytes of a call moved, ``phase`` that of the training step (labkit.timeline.phases),
    ``stream`` that of the device, "" for the one there is without a choice.
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
    stream: str = ""


@dataclass(frozen=True, slots=True)
class Noted:
    """A problem while the run is recorded: kind, rank and text as in Problem, and the span it speaks of."""

    kind: str
    rank: int
    text: str
    row: Row


class HeldUp(NamedTuple):
    """A stream that another one held up: the span it began then, the one whose end it waited for, from when to when."""

    row: Row
    of: Row
    start_ns: int
    end_ns: int


@dataclass
class RankRecord:
    """The spans of one rank, in the order it began them, what its memory held, and how much it computed.

    ``held`` are the waits of the streams of its device for each other.
    """

    rank: int
    rows: list[Row] = field(default_factory=list)
    held: list[HeldUp] = field(default_factory=list)
    problems: list[Noted] = field(default_factory=list)
    memory: RankMemory | None = None
    work: WorkDone = field(default_factory=WorkDone)

    def add(self, row: Row) -> Row:
        """Return the row, now part of the record."""
        self.rows.append(row)
        return row

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
        self._kinds: dict[int, str] = {}  # id of code -> whose it is; "send" and "recv" where it is one of these
        self._seen: list[CodeType] = []  # keeps the ids from being used again
        self._texts: dict[tuple[int, int], str] = {}

    def find(self, frame: FrameType | None) -> tuple[str, str]:
        """Return file:line of the first frame outside torch and labkit ("" for none), and "send" or "recv" on the way.

        Args:
            frame: Where to start.
        """
        entry, kinds = "", self._kinds
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(id(code))
            if kind is None:
                kind = self._kind(code)
            if kind is _LEARNERS:
                key = (id(code), frame.f_lasti)  # to find the line of it takes a search
                text = self._texts.get(key)
                if text is None:
                    text = self._texts[key] = f"{code.co_filename}:{frame.f_lineno}"
                return text, entry
            if kind:
                entry = kind
            frame = frame.f_back
        return "", entry

    def _kind(self, code: CodeType) -> str:
        self._seen.append(code)
        foreign = code.co_filename.startswith(_FOREIGN) and code.co_filename != AUDITED
        kind = self._kinds[id(code)] = self._entries.get(id(code), "") if foreign else _LEARNERS
        return kind


def short(source: str) -> str:
    """Return file:line as reports show it: "lesson.py, line 12", "Cell In[5], line 3", "" for no source."""
    return place(source)


def at(source: str) -> str:
    """Return " (lesson.py, line 12)", or "" where the line is not known."""
    return f" ({short(source)})" if source else ""
