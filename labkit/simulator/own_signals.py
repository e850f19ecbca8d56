"""Handlers of signals that ranks set: each rank's own, as each process has its own; nothing sends a rank a signal."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from labkit.simulator.state import current_rank


@contextmanager
def installed() -> Iterator[None]:
    """Give ranks tables of handlers of their own while ranks run; other threads have the process's."""
    of_rank: dict[int, dict[int, Any]] = {}
    real = {name: getattr(signal, name) for name in ("signal", "getsignal", *_TIMERS) if hasattr(signal, name)}

    def getsignal(number: int, /) -> Any:
        rank = current_rank()
        return real["getsignal"](number) if rank is None else of_rank.get(rank.rank, {}).get(number, _fresh(number))

    def set_handler(number: int, handler: Any, /) -> Any:
        rank = current_rank()
        if rank is None:
            return real["signal"](number, handler)
        if number not in signal.valid_signals():
            raise ValueError("signal number out of range")
        if number in _NEVER_CAUGHT:
            raise OSError(22, "Invalid argument")
        before = getsignal(number)
        of_rank.setdefault(rank.rank, {})[number] = handler
        return before

    fakes: dict[str, Callable[..., Any]] = {"signal": set_handler, "getsignal": getsignal}
    fakes |= {name: _refusing(real[name], name) for name in _TIMERS if name in real}
    for name, fake in fakes.items():
        setattr(signal, name, fake)
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(signal, name, function)


_TIMERS = ("alarm", "setitimer")  # Windows has neither
_NEVER_CAUGHT = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}


def _fresh(number: int) -> Any:
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL


def _refusing(real: Callable[..., Any], name: str) -> Callable[..., Any]:
    def ask(*args: Any, **kwargs: Any) -> Any:
        if current_rank() is not None:
            raise RuntimeError(
                f"signal.{name} was called on a virtual rank: no signal reaches one, for all ranks share a process. "
                "Compare time.monotonic() with a deadline of the program's own, or run on labkit.local()."
            )
        return real(*args, **kwargs)

    return ask
