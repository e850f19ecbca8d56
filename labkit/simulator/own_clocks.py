"""The clocks and calendars of Python's time, as a rank reads them: virtual time."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from typing import Any

from labkit.simulator.state import current_rank

EPOCH_NS = 1_767_225_600 * 10**9
"""What time.time() says when a run begins: 2026-01-01 00:00 UTC, the same in every run."""

READ_NS = 50
"""What looking at a clock costs, so that a loop that waits for a time makes time pass."""


def clock_functions() -> list[tuple[Any, str, Callable[..., Any]]]:
    """Return what reads a clock, sleeps or tells a date: module, name, and what stands there while a run goes on."""

    def reading(real: Callable[[], Any], of: Callable[[int], Any]) -> Callable[[], Any]:
        def read() -> Any:
            rank = current_rank()
            if rank is None:
                return real()
            rank.spend(READ_NS)
            return of(rank.now_ns)

        return read

    real_sleep = time.sleep

    def sleep(seconds: float, /) -> None:
        rank = current_rank()
        if rank is None:
            real_sleep(seconds)
            return
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        rank.sleep(round(seconds * 1e9))

    found: list[tuple[Any, str, Callable[..., Any]]] = [(time, "sleep", sleep)]
    for name in ("perf_counter", "monotonic", "process_time", "thread_time"):
        found.append((time, name, reading(getattr(time, name), lambda now_ns: now_ns / 1e9)))
        found.append((time, f"{name}_ns", reading(getattr(time, f"{name}_ns"), lambda now_ns: now_ns)))
    found.append((time, "time", reading(time.time, lambda now_ns: (EPOCH_NS + now_ns) / 1e9)))
    found.append((time, "time_ns", reading(time.time_ns, lambda now_ns: EPOCH_NS + now_ns)))
    found.append((timeit, "default_timer", found[1][2]))
    found += _calendar_functions() + _numbered_clocks()
    return found


def _calendar_functions() -> list[tuple[Any, str, Callable[..., Any]]]:
    """Return what tells the date of now where it is given none: of a rank's now."""

    def told(real: Callable[..., Any], place: int, now: Callable[[float], Any]) -> Callable[..., Any]:
        def tell(*args: Any) -> Any:
            asks = len(args) == place or (place == 0 and args == (None,))
            return real(*args[:place], now(time.time())) if asks and current_rank() is not None else real(*args)

        return tell

    local = time.localtime
    whole: list[tuple[str, int, Callable[[float], Any]]] = [
        *(("localtime", 0, float), ("gmtime", 0, float), ("ctime", 0, float)),
        *(("asctime", 0, local), ("strftime", 1, local)),
    ]
    return [(time, name, told(getattr(time, name), place, now)) for name, place, now in whole]


def _numbered_clocks() -> list[tuple[Any, str, Callable[..., Any]]]:
    """Return what reads a clock of the system by its number: a rank's own, whichever it is."""
    if not hasattr(time, "clock_gettime"):
        return []
    real, real_ns = time.clock_gettime, time.clock_gettime_ns

    def clock_gettime_ns(number: int, /) -> int:
        if current_rank() is None:
            return real_ns(number)
        return time.time_ns() if number == time.CLOCK_REALTIME else time.monotonic_ns()

    def clock_gettime(number: int, /) -> float:
        return real(number) if current_rank() is None else clock_gettime_ns(number) / 1e9

    return [(time, "clock_gettime", clock_gettime), (time, "clock_gettime_ns", clock_gettime_ns)]
