"""Locks whose waiting is virtual: what ``threading.Lock()`` gives a rank.

Python's events, conditions, semaphores, barriers, queues, futures of executors and re-entrant locks are written in
Python around this one primitive, so they wait in virtual time too once it does. A lock made in a rank outlives the run
where a module that was first imported there keeps it; to threads that are no rank's it is the lock it would have been.
What libraries keep for their whole process is in labkit.simulator.library_locks.
"""

from __future__ import annotations

import concurrent.futures.thread
import importlib
import multiprocessing.synchronize
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from labkit.simulator.clock import Abandoned, Event, Waiting
from labkit.simulator.record import at
from labkit.simulator.state import VirtualRank, current_rank

POLL_NS = 1_000
"""What asking for a lock that is taken costs, so that a loop that asks again makes time pass."""

MOST_POLL_NS, FILE_LOCK_NS = 10**9, 600 * 10**9
"""The longest that a rank waits before it asks again for a file that is locked, and after which it gives up."""

_real_lock, _real_rlock = threading.Lock, threading.RLock
_files: Any = importlib.import_module("fcntl") if sys.platform != "win32" else None
_real_flock: Any = getattr(_files, "flock", None)
_python: Any = threading
_executors: Any = concurrent.futures.thread
_queues: Any = queue
_AROUND = (
    *(threading.__file__, queue.__file__, multiprocessing.synchronize.__file__),
    *(str(Path(path).parent) for path in (__file__, _executors.__file__)),
)

NEEDED: dict[str, Any] = {
    "threading._allocate_lock": lambda: _python._allocate_lock,
    "threading._PyRLock": lambda: _python._PyRLock,
    "threading._time": lambda: _python._time,
    "queue.time": lambda: _queues.time,
    "queue._PySimpleQueue": lambda: _queues._PySimpleQueue,
    "concurrent.futures.thread._global_shutdown_lock": lambda: _executors._global_shutdown_lock,
    "concurrent.futures.thread._threads_queues": lambda: _executors._threads_queues,
}
"""What is used of Python beyond its documentation; a test calls each."""


class RankLock:
    """A lock in virtual time; who waits longest gets it next."""

    _passes_on = True
    """Whether who gives it back gives it to who waits longest; else that one asks again."""

    def __init__(self, real: Any = None) -> None:
        """Be free, or what a lock that is there already is.

        Args:
            real: That lock; whoever is no rank may go on using it.
        """
        self._real: Any = _real_lock() if real is None else real
        self._waiting: deque[Event] = deque()
        self._holder: VirtualRank | None = None
        self._line = ""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Return whether the lock is now held by the caller; see threading.Lock."""
        rank = current_rank()
        if rank is None:
            return bool(self._real.acquire(blocking, timeout))
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        ended = rank.simulation.scheduler.has_ended
        if rank.process.threaded and not ended:
            rank.turn()
        if self._real.acquire(False):
            self._now_held_by(rank)
            return True
        if ended:
            raise Abandoned
        if not blocking or timeout == 0:
            rank.spend(POLL_NS)
            return False
        if self._holder is None:  # by a thread that is no rank's, and needs none to go on
            return bool(self._real.acquire(blocking, timeout))
        return self._wait(rank, timeout)

    def release(self) -> None:
        """Give the lock to who waits longest, or to nobody."""
        rank = current_rank()
        if self._waiting and rank is not None:
            rank.simulation.scheduler.fire(self._waiting.popleft(), rank.now_ns)
        else:
            self._holder = None
            self._real.release()

    def locked(self) -> bool:
        """Return whether somebody holds it."""
        return bool(self._real.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle '_thread.lock' object")

    def _is_owned(self) -> bool:
        return bool(self._real.locked())

    def _at_fork_reinit(self) -> None:
        self._real = _real_lock()
        self._waiting.clear()

    def _wait(self, rank: VirtualRank, timeout: float) -> bool:
        scheduler, event = rank.simulation.scheduler, Event()
        self._waiting.append(event)
        given_up = []

        def give_up() -> None:
            if event in self._waiting:
                self._waiting.remove(event)
                given_up.append(True)
                scheduler.fire(event, rank.now_ns + round(timeout * 1e9))

        if timeout >= 0:
            scheduler.act(rank.now_ns + round(timeout * 1e9), give_up)
        source, _ = rank.simulation.sources.find(sys._getframe(2))
        what = _call(sys._getframe(2))
        try:
            rank.wait(event, Waiting(what, lambda: self._peers(rank), lambda: what + self._held(rank, what), source))
        except Abandoned:
            if event in self._waiting:
                self._waiting.remove(event)
            elif self._passes_on and not given_up:
                self._real.release()  # it was given to this thread, which ends
            raise
        if given_up:
            return False
        if self._passes_on:
            self._now_held_by(rank)
        return True

    def _now_held_by(self, rank: VirtualRank) -> None:
        self._holder = rank
        self._line = rank.simulation.sources.find(sys._getframe(2))[0]

    def _peers(self, rank: VirtualRank) -> list[int]:
        holder = self._holder  # a condition takes a lock of its own and waits for it to be given back
        return [] if holder is None or holder.clock is rank.clock else [holder.clock.number]

    def _held(self, rank: VirtualRank, what: str) -> str:
        holder = self._holder
        if holder is None or not self._line:
            return ""
        if holder.clock is rank.clock:
            return f", which it took itself{at(self._line)}" if what == "Lock.acquire" else ""
        return f", which {holder.clock.name} took{at(self._line)} and has not released"


def _call(frame: FrameType | None) -> str:
    """Return what the learner called to come here: "Queue.get", "Event.wait"; "Lock.acquire" for the lock itself."""
    found = "Lock.acquire"
    while frame is not None and frame.f_code.co_filename.startswith(_AROUND):
        owner = frame.f_locals.get("self")
        if owner is not None and not isinstance(owner, RankLock):
            name = frame.f_code.co_name.strip("_")
            found = f"{type(owner).__name__.removeprefix('_Py')}.{'acquire' if name == 'enter' else name}"
        frame = frame.f_back
    return found


def make_lock() -> Any:
    """Return a lock in virtual time to a rank, a real one to others."""
    return _real_lock() if current_rank() is None else RankLock()


def _make_rlock(*args: Any, **kwargs: Any) -> Any:
    return _real_rlock(*args, **kwargs) if current_rank() is None else _python._PyRLock(*args, **kwargs)


class _LockOfEachRank:
    """Stands where the library keeps one lock for the whole process."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def _mine(self) -> Any:
        rank = current_rank()
        if rank is None:
            return self._real
        return rank.process.locks.setdefault(id(self), RankLock())

    def __enter__(self) -> Any:
        return self._mine().__enter__()

    def __exit__(self, *error: object) -> None:
        self._mine().__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mine(), name)


def _flock(file: Any, operation: int) -> None:
    """Lock a file or release it; a rank asks again while another holds it, so that the other can go on."""
    rank = current_rank()
    if rank is not None and not rank.simulation.scheduler.has_ended:
        rank.turn()
    if rank is None or operation & (_files.LOCK_NB | _files.LOCK_UN):
        _real_flock(file, operation)
        return
    until_ns, wait_ns = rank.now_ns + FILE_LOCK_NS, POLL_NS
    while True:
        try:
            _real_flock(file, operation | _files.LOCK_NB)
            return
        except BlockingIOError:
            if rank.simulation.scheduler.has_ended:
                raise Abandoned from None
            if rank.now_ns >= until_ns:
                raise RuntimeError(
                    f"fcntl.flock waited {FILE_LOCK_NS // 10**9} s of virtual time for a file that another rank or "
                    "process holds. Release it there before ranks wait for each other."
                ) from None
        rank.spend(wait_ns)
        rank.turn()
        wait_ns = min(2 * wait_ns, MOST_POLL_NS)


REPLACED: dict[tuple[str, str], Any] = {
    ("_thread", "allocate_lock"): make_lock,
    ("_thread", "lock"): make_lock,
    ("threading", "RLock"): _make_rlock,
    ("_thread", "RLock"): _make_rlock,
    ("_queue", "SimpleQueue"): _queues._PySimpleQueue,
    ("fcntl", "flock"): _flock,
}
"""What a pickle names -> what a rank gets, for names taken by ``from threading import Lock``."""


@contextmanager
def installed() -> Iterator[None]:
    """Let locks that ranks make wait in virtual time; leave Python as it was."""

    def now() -> Any:
        return time.monotonic()  # found at each call: ranks have their own

    with ExitStack() as stack:
        for owner, name, value in (
            (_python, "Lock", make_lock),
            (_python, "_allocate_lock", make_lock),
            (_python, "RLock", _make_rlock),
            (_python, "_time", now),
            (_queues, "time", now),
            (_queues, "SimpleQueue", _queues._PySimpleQueue),
            (_executors, "_global_shutdown_lock", _LockOfEachRank(_executors._global_shutdown_lock)),
        ):
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        if _files is not None:
            stack.callback(setattr, _files, "flock", _real_flock)
            _files.flock = _flock
        yield
