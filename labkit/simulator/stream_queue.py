"""A stream of a virtual device: what is queued on it, and what it waited for."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from labkit.simulator.record import Row

if TYPE_CHECKING:
    from labkit.simulator.streams import Task


class StreamQueue:
    """One stream: the tasks that the host has issued to it and the device has not begun.

    Attributes:
        name: What the timeline calls it, "" for the default stream.
        tasks: In order.
        at_work: The task that the device runs now, or waits at.
        looked_at: Whether the device will look at it again when its first task has been issued.
        last: The span of its last kernel.
        cause: The span at whose end it came to where it is: its own last one, or the one it waited for.
        held: The wait that it came out of last: for which span, from when, until when.
    """

    __slots__ = ("at_work", "cause", "held", "last", "looked_at", "name", "tasks")

    def __init__(self, name: str = "") -> None:
        """Begin empty."""
        self.name = name
        self.tasks: deque[Task] = deque()
        self.at_work: Task | None = None
        self.looked_at = False
        self.last: Row | None = None
        self.cause: Row | None = None
        self.held: tuple[Row, int, int] | None = None
