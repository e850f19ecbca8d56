"""Ranks that wait inside torch's C++, where no wait is on record: for a collective that was posted and is not complete.

DDP's reducer waits so at the end of a backward pass, and whoever reads the result of a functional collective. What is
recorded is the call. That the rank waits for it is taken from where its Python stack ends: in torch, while no CPU is
used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from labkit.launch.recording import RankLog, Wait
from labkit.launch.stacks import Frame, parse_fault
from labkit.launch.waits import POINT_TO_POINT

ASK_AFTER_SECONDS = 0.4
"""How long a rank must have used no CPU, with a collective under way, before it is asked for its stack."""
_IDLE_CPU_SECONDS = 0.05
_TORCH = f"{os.sep}torch{os.sep}"
_OTHER_WAITS = tuple(f"{_TORCH}{part}" for part in ("cuda", "utils", "serialization", "hub", "multiprocessing"))
"""Parts of torch that wait for something else: a device, a file, a loader's worker, a download."""


def stands_in_torch(frames: Sequence[Frame]) -> bool:
    """Return whether a stack, outermost frame first, ends in a part of torch that may wait for other ranks."""
    if not frames:
        return False
    file = frames[-1].file
    return f"site-packages{_TORCH}" in file and not any(part in file for part in _OTHER_WAITS)


def posted(log: RankLog) -> Wait | None:
    """Return the oldest collective of a rank that is not known to be complete, None where there is none."""
    return next((wait for wait in log.pending if wait.operation not in POINT_TO_POINT and wait.group), None)


def as_waiting(log: RankLog, frames: Sequence[Frame]) -> RankLog:
    """Return what a rank recorded, with the wait that its stack tells of where none is on record."""
    hidden = posted(log) if not log.waits and stands_in_torch(frames) else None
    return log if hidden is None else replace(log, waits=(hidden,))


@dataclass
class _Sight:
    call: Wait
    cpu: float
    since: float
    asked: bool = False


class HiddenWaits:
    """Asks ranks that may wait so for their stacks, and remembers the answers."""

    def __init__(self, ask: Callable[[int], None], answer: Callable[[int], str]) -> None:
        """Begin with nothing seen.

        Args:
            ask: Asks a rank for its stack.
            answer: Returns what has come of it so far.
        """
        self._ask, self._answer = ask, answer
        self._seen: dict[int, _Sight] = {}

    def found(self, rank: int, log: RankLog, cpu: float | None, now: float) -> RankLog:
        """Return what a rank recorded, with its hidden wait once that is known.

        Args:
            rank: The rank.
            log: What it recorded until now.
            cpu: CPU seconds it has used, None where that is not known.
            now: Monotonic time in seconds.
        """
        call = None if log.waits else posted(log)
        if call is None or cpu is None:
            self._seen.pop(rank, None)
            return log
        sight = self._seen.get(rank)
        if sight is None or sight.call != call or cpu - sight.cpu > _IDLE_CPU_SECONDS:
            self._seen[rank] = _Sight(call, cpu, now)
            return log
        if not sight.asked:
            if now - sight.since > ASK_AFTER_SECONDS:
                sight.asked = True
                self._ask(rank)
            return log
        return as_waiting(log, parse_fault(self._answer(rank)))
