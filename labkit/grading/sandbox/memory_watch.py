"""A limit on the memory of a whole process tree that ends in words: look, and end it when it is over.

Where there can be a cgroup, it stands behind this with twice as much, for what grows faster than we look.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from labkit.grading.sandbox.process_tree import below

_PAGE = os.sysconf("SC_PAGE_SIZE")
_EVERY_SECONDS = 0.25


class MemoryWatch:
    """Watches from a thread of its own until `stop`; calls `end` once when the tree has more than `limit_bytes`.

    Args:
        roots: Returns the process ids above the tree; none, or 0, while there is no tree yet.
        limit_bytes: What the tree may have.
        end: Ends it.
    """

    def __init__(self, roots: Callable[[], Iterable[int]], limit_bytes: int, end: Callable[[], object]) -> None:
        self.exceeded = False
        self._roots, self._limit, self._end = roots, limit_bytes, end
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory watch", daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_SECONDS):
            roots = [pid for pid in self._roots() if pid]
            if roots and is_over(roots, self._limit):
                self.exceeded = True
                self._end()
                return


def is_over(roots: Iterable[int], limit_bytes: int) -> bool:
    """Return whether the trees below and with `roots` have more memory than this, shared pages counted once."""
    roots = list(roots)
    pids = [*roots, *below(roots)]
    # What a process has for itself is quick to read, but counts pages a fork shares for each side.
    if sum(map(_own_bytes, pids)) <= limit_bytes:
        return False
    return sum(map(_proportional_bytes, pids)) > limit_bytes


def _own_bytes(pid: int) -> int:
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * _PAGE


def _proportional_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return 0
