"""Notices a rank that waits where virtual time does not know: nobody else can go on, and nothing says so."""

from __future__ import annotations

import linecache
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType

from labkit.simulator.clock import Scheduler
from labkit.simulator.record import Sources, short

STAND_S = 4.0
"""How long a rank may use no processor and let no other run before it counts as waiting."""

_BUSY_S = 0.05
"""Less than this in that time is no use of a processor: looking whether it can go on costs as much."""

WHAT_IS_VIRTUAL = (
    "Virtual time covers waits in torch.distributed (calls, handles, futures, stores), torch.futures, locks, queues, "
    "threads and time.sleep. It does not cover sockets, files, other processes, input(), or waits inside a library's "
    "C++ code: there a rank waits in real time, and no other rank can run meanwhile. "
    "Wait through torch.distributed instead, or run on labkit.local()."
)


class Standstill:
    """Watches one run from outside its ranks."""

    def __init__(self, scheduler: Scheduler, threads: Callable[[], Sequence[threading.Thread]]) -> None:
        """Begin to watch.

        Args:
            scheduler: Says which rank runs.
            threads: Returns all threads of ranks, those of the ranks themselves first.
        """
        self._scheduler, self._threads = scheduler, threads
        self._since_s = time.monotonic()
        self._switches = -1
        self._used_s = 0.0
        self._told = -1

    def look(self) -> str | None:
        """Return in words where the running rank stands, once it has stood too long, once; None while all is well.

        What uses a processor is no standstill, however long it takes: that is what a time limit is for.
        """
        now_s = time.monotonic()
        used_s = sum(map(_processor_s, self._threads()))
        if self._scheduler.switches != self._switches or used_s - self._used_s > _BUSY_S:
            self._switches, self._used_s, self._since_s = self._scheduler.switches, used_s, now_s
            return None
        if now_s - self._since_s < STAND_S or self._told == self._switches:
            return None
        self._told = self._switches
        return self.where()

    def where(self) -> str | None:
        """Return which rank runs and the line it stands on, None where no rank does."""
        rank, threads = self._scheduler.running, self._threads()
        if not 0 <= rank < len(threads):
            return None
        frame = sys._current_frames().get(threads[rank].ident or -1)
        source, _ = Sources().find(frame)
        line = linecache.getline(source.rpartition(":")[0], int(source.rpartition(":")[2] or 0)).strip()
        said = f" ({short(source)}{f': {line}' if line else ''})" if source else ""
        return f"rank {rank} stands in {_name(frame)}{said}"


def _name(frame: FrameType | None) -> str:
    if frame is None:
        return "a call"
    module = str(frame.f_globals.get("__name__", ""))
    return f"{module}.{frame.f_code.co_qualname}" if module.startswith("torch") else frame.f_code.co_name


def _processor_s(thread: threading.Thread) -> float:
    """Return the processor time a thread has used; where the system does not say, as if it were always busy."""
    clock_of = getattr(time, "pthread_getcpuclockid", None)
    if clock_of is None:
        return time.monotonic()
    try:
        return time.clock_gettime(clock_of(thread.ident or 0)) if thread.is_alive() else 0.0
    except OSError:  # it has just ended
        return 0.0
