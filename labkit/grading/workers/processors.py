"""Processors of its own for each worker: what runs at the same time hears the less of another's load.

All that a worker starts stays on its processors; in a sandbox the call that would change that is cut (seccomp.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def share(place: int, count: int, there: Sequence[int]) -> tuple[int, ...]:
    """Return the processors of one of several workers; () for all, where it is alone or there are fewer than workers.

    Args:
        place: Which of the workers it is, from 0.
        count: How many there are.
        there: The numbers of the processors, in ascending order: neighbours often share a cache.
    """
    if count < 2 or len(there) < count:
        return ()
    return tuple(there[len(there) * place // count : len(there) * (place + 1) // count])


def processors() -> list[int]:
    """Return those that this process may use; [] where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []


def keep_to(numbers: Sequence[int], pid: int) -> None:
    """Keep a process, and so all that it starts from now on, to some processors.

    Args:
        numbers: Of the processors; where there are none, nothing is done.
        pid: The process; its threads may be starting others meanwhile.
    """
    if sys.platform != "linux" or not numbers:
        return
    kept: set[str] = set()
    while new := {each.name for each in Path(f"/proc/{pid}/task").iterdir()} - kept:
        for thread in new:
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(int(thread), numbers)
        kept |= new
