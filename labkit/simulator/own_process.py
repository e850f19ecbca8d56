"""What a rank asks of its process and cannot have of its own: its end, its number, an event loop's wait for a timer."""

from __future__ import annotations

import os
import selectors
import sys
from collections.abc import Callable
from typing import Any

from labkit.simulator.own_modules import is_programs
from labkit.simulator.state import current_rank

_ONE_PID = (
    "Virtual ranks are threads of one process, so os.getpid() returns the same number on every rank. "
    'To make file names differ, use dist.get_rank() or os.environ["RANK"].'
)


def functions() -> list[tuple[Any, str, Callable[..., Any]]]:
    """Return (owner, name, what ranks and other threads call there while a run goes on)."""
    return [(selectors.DefaultSelector, "select", _selecting()), (os, "_exit", _leaving())]


def _selecting() -> Callable[..., Any]:
    """Return what an event loop waits with: for its timers, in virtual time."""
    real = selectors.DefaultSelector.select

    def select(self: Any, timeout: float | None = None) -> Any:
        rank = current_rank()
        if rank is None or timeout is None or timeout <= 0:
            return real(self, timeout)
        ready = real(self, 0)
        if not ready and len(self.get_map()) > 1:  # beside what wakes the loop: sockets and pipes, in real time
            ready = real(self, timeout)
        if not ready:
            rank.sleep(round(timeout * 1e9))
        return ready

    return select


def _leaving() -> Callable[[int], Any]:
    """Return what ends a rank where os._exit would end the notebook."""
    real, here = os._exit, os.getpid()

    def leave(status: int, /) -> Any:
        if current_rank() is not None and os.getpid() == here:
            raise SystemExit(status)
        real(status)

    return leave


def telling_pid(notes: dict[str, int]) -> Callable[[], int]:
    """Return os.getpid, which notes that a program's own code asked: it would be told different numbers."""
    real = os.getpid

    def getpid() -> int:
        rank = current_rank()
        if rank is not None and is_programs(str(sys._getframe(1).f_globals.get("__name__"))):
            notes.setdefault(_ONE_PID, rank.rank)
        return real()

    return getpid
