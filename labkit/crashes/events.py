"""What a program does that a crash can come before, and when all of its ranks had gone on to another step."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from labkit.simulator.state import current_rank, outside


@dataclass(frozen=True)
class Event:
    """A step, a call or a file operation that a rank was about to make."""

    rank: int
    kind: str
    op: str
    path: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.op or self.kind, self.path)))


@dataclass(frozen=True)
class Begun:
    """The moment at which the last of the ranks began a step.

    Attributes:
        place: Of its event.
        step: The step, from 1.
        files: Stands for what was on the disk.
    """

    place: int
    step: int
    files: str


class Events:
    """The events of a run.

    Attributes:
        events: In the order in which they came.
    """

    def __init__(self, files: Callable[[], str]) -> None:
        """Begin to note.

        Args:
            files: Returns what stands for the contents of the disk.
        """
        self.events: list[Event] = []
        self._files, self._now = files, ""
        self._begun: dict[int, list[Begun]] = {}  # of each rank that steps
        self._in_background: list[int] = []

    def note(self, rank: int, kind: str, op: str, path: str) -> None:
        """Note an event; called in the thread of the rank that is about to make it."""
        place = len(self.events)
        self.events.append(Event(rank, kind, op, path))
        if kind == "file":
            self._now = ""
            caller = current_rank()
            if caller is not None and caller.clock.number != rank:
                self._in_background.append(place)
        elif kind == "step":
            if not self._now:
                with outside():
                    self._now = self._files()
            steps = self._begun.setdefault(rank, [])
            steps.append(Begun(place, len(steps) + 1, self._now))

    def all_began(self, place: int) -> Begun | None:
        """Return when, before an event, all ranks had last begun a step with their saves behind them, None if never.

        A save that a thread makes in the background is behind them once a step has passed without a file operation.
        """
        number = bisect_right(self._steps, place, key=lambda begun: begun.place)
        return self._steps[number - 1] if number else None

    @cached_property
    def _steps(self) -> list[Begun]:
        last = [max(each, key=lambda begun: begun.place) for each in zip(*self._begun.values(), strict=False)]
        ends = [0, *(begun.place for begun in last), len(self.events)]
        busy = Counter(bisect_right(ends, place) - 1 for place in self._in_background)
        return [begun for number, begun in enumerate(last) if not busy[number] and not busy[number + 1]]
