"""Ranks' threads on one core of the processor, as long as they have it to themselves.

One rank runs at a time. On the core where the last one ran it finds in the cache what both use, and to wake it takes no
message to another core: a run of many ranks that change often takes a tenth less processor time. On a core that other
work wants too, such a run would wait while another core has nothing to do. So whoever watches the run looks whether it
gets the time that passes, lets its threads go where it does not, and tries another core a while later.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from labkit.simulator.state import current_rank

_LOOK_S = 0.2
_SHARE = 0.85
"""Of the time that passes, what the run must get to be called alone."""
_RATE = 1_000
"""Changes of rank in a second from which on a core's cache matters more than computing on several cores."""
_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0

_python: Any = os
_affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)


class OneCore:
    """Puts threads on a core and lets them go.

    Attributes:
        core: Where they are kept, None while they are free.
    """

    def __init__(self, threads: Callable[[], list[threading.Thread]], switches: Callable[[], int]) -> None:
        """Leave the threads free at first.

        Args:
            threads: Returns those of the ranks.
            switches: Returns how often another rank took over.
        """
        self._threads, self._switches = threads, switches
        self._cores = sorted(_affinity(0)) if _affinity is not None else []
        self.core: int | None = None
        self._tries = 0
        self._pause_s, self._free_until = _PAUSE_S, 0.0
        self._seen = time.monotonic(), time.process_time(), 0

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Let ranks that ask be told all cores."""
        real = _affinity
        if real is None:
            yield
            return

        def cores(pid: int) -> set[int]:
            return real(pid) if pid or current_rank() is None else set(self._cores)

        _python.sched_getaffinity = cores
        try:
            yield
        finally:
            _python.sched_getaffinity = real

    def look(self) -> None:
        """Keep the threads on a core or let them go, by how the run went since the last look; call it often."""
        now, (before, used_before, switches_before) = time.monotonic(), self._seen
        passed = now - before
        if passed < _LOOK_S or len(self._cores) < 2:
            return
        used, switches = time.process_time(), self._switches()
        self._seen = now, used, switches
        alone = used - used_before >= _SHARE * passed
        if alone and switches - switches_before >= _RATE * passed:
            if self.core is not None:
                self._pause_s = _PAUSE_S  # it is well placed
            elif now >= self._free_until:
                self._tries += 1
                self._place(self._cores[-self._tries % len(self._cores)])
        elif self.core is not None:
            self._place(None)
            self._free_until, self._pause_s = now + self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _place(self, core: int | None) -> None:
        self.core = core
        cores = self._cores if core is None else [core]
        # A thread that is woken and is no batch does not wait for who woke it, and finds Python's lock taken.
        policy = _python.SCHED_OTHER if core is None else _python.SCHED_BATCH
        for thread in self._threads():
            if thread.native_id is not None:
                with suppress(OSError):  # it has ended, or the system allows none of this
                    _python.sched_setaffinity(thread.native_id, cores)
                    _python.sched_setscheduler(thread.native_id, policy, _python.sched_param(0))
