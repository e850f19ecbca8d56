"""Locks that a library keeps for its whole process, for which ranks wait in virtual time.

Ranks are threads and share a library, and with it a lock of its modules, classes or objects. A rank that holds one may
give its turn away, at a clock or in a call of torch.distributed; another that then stood in the real lock would never
give it back. So what is found there is wrapped: a rank asks, waits in virtual time where another rank has the lock, and
asks again. Other threads find the real one behind it, whether or not they came by the wrapper.

Found are locks in what a module names, in its classes, in objects of these and in lists and dictionaries there; and all
locks of multiprocessing, which tells of them. A lock that library code made outside ranks, after a first run has looked
at the module and out of this reach, stays real.
"""

from __future__ import annotations

import multiprocessing.synchronize
import multiprocessing.util
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from labkit.simulator.clock import Abandoned
from labkit.simulator.locks import POLL_NS, RankLock
from labkit.simulator.state import current_rank

_DEPTH, _LONGEST = 4, 1_000
"""How far from a module's names locks are looked for, and the longest list or dictionary that is looked through."""

_python: Any = threading
_processes: Any = multiprocessing.synchronize
_registered: Any = multiprocessing.util
_RECURSIVE: int = _processes.RECURSIVE_MUTEX
_real_lock: Any = type(threading.Lock())
_real_rlock: Any = type(threading.RLock())
_HOLD_LOCKS = (
    *(threading.Condition, threading.Event, threading.Semaphore, threading.Barrier, queue.Queue),
    *(_processes.Condition, _processes.Event),
)
_MAKES_LOCKS = (b"Lock(", b"Condition(", b"Semaphore(", b"Event(", b"Barrier(", b"Queue(")
"""What stands in the source of a module that keeps locks: to read a thousand takes less than to look through them."""

_looked_at: dict[str, ModuleType] = {}

NEEDED: dict[str, Callable[[], Any]] = {
    "multiprocessing.synchronize.SemLock": lambda: _processes.SemLock._make_methods,
    "multiprocessing.synchronize.RECURSIVE_MUTEX": lambda: _processes.RECURSIVE_MUTEX,
    "multiprocessing.util._afterfork_registry": lambda: _registered._afterfork_registry.values,
    "threading.Condition._waiters": lambda: threading.Condition()._waiters,  # type: ignore[attr-defined]
    "threading.Condition._lock": lambda: threading.Condition()._lock,  # type: ignore[attr-defined]
    "threading._PyRLock._block": lambda: _python._PyRLock()._block,
}
"""What is used of Python beyond its documentation; a test calls each."""


class LibraryLock(RankLock):
    """A lock that is there already: a rank that finds it taken waits in virtual time, and asks again."""

    _passes_on = False

    def __init__(self, real: Any, *, signals: bool = False) -> None:
        """Stand for a lock.

        Args:
            real: The lock.
            signals: Whether who takes it and who gives it back may be two, as with a semaphore.
        """
        super().__init__(real)
        self._signals = signals
        self._taken = 0

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Return whether the caller has it; see threading.Lock and multiprocessing.Lock."""
        rank, seconds = current_rank(), -1.0 if timeout is None else timeout
        if rank is None:
            return self._acquire_real(blocking, seconds)
        if rank.process.threaded and not rank.simulation.scheduler.has_ended:
            rank.turn()
        until_ns = rank.now_ns + round(seconds * 1e9)
        while not self._real.acquire(False):
            if rank.simulation.scheduler.has_ended:
                raise Abandoned
            if not blocking or (seconds >= 0 and rank.now_ns >= until_ns):
                rank.spend(POLL_NS)
                return False
            if not (self._taken or self._signals):  # by a thread that is no rank's, and needs none to go on
                return self._acquire_real(blocking, seconds)
            self._wait(rank, (until_ns - rank.now_ns) / 1e9 if seconds >= 0 else -1)
        self._taken += 1
        self._now_held_by(rank)
        return True

    def release(self) -> None:
        """Give it back; who waits longest asks again."""
        self._real.release()
        self._given_back(1)

    def _acquire_real(self, blocking: bool, seconds: float) -> bool:
        return bool(self._real.acquire(blocking) if seconds < 0 else self._real.acquire(blocking, seconds))

    def _given_back(self, times: int) -> None:
        rank = current_rank()
        if rank is None:
            return
        self._taken = max(0, self._taken - times)
        if not self._taken:
            self._holder = None
        if self._waiting:
            rank.simulation.scheduler.fire(self._waiting.popleft(), rank.now_ns)

    def __getattr__(self, name: str) -> Any:
        if name == "_real":
            raise AttributeError(name)
        return getattr(self._real, name)


class LibraryRLock(LibraryLock):
    """The same of a lock that its holder may take again."""

    def _is_owned(self) -> bool:
        return bool(self._real._is_owned())

    def _release_save(self) -> Any:
        """Give it back as often as it was taken, and return how often; a condition waits so."""
        state = self._real._release_save()
        self._given_back(state[0])
        return state

    def _acquire_restore(self, state: Any) -> None:
        if current_rank() is None:
            self._real._acquire_restore(state)
            return
        for _ in range(state[0]):
            self.acquire()


class LibrarySemaphore(LibraryLock):
    """The same of what stands behind a lock or semaphore of multiprocessing, which names an argument otherwise."""

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Return whether the caller has it; see multiprocessing.Lock."""
        return super().acquire(block, None if timeout is None else max(timeout, 0))


def _shared_semaphore(lock: Any) -> None:
    """Wrap what stands behind a lock or semaphore of multiprocessing, wherever that is kept."""
    real = vars(lock).get("_semlock")
    if real is not None and not isinstance(real, RankLock):
        lock._semlock = LibrarySemaphore(real, signals=real.kind != _RECURSIVE and real.maxvalue > 1)
        lock._make_methods()


class _Search:
    """Goes through what a module keeps and wraps the locks in it."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._wrapped: dict[int, RankLock] = {}
        self._seen: set[int] = set()

    def instead_of(self, value: Any, depth: int) -> Any:
        """Return what is to stand where this stands: the value itself, changed inside, or a wrapper."""
        kind = type(value)
        if kind is _real_lock or kind is _real_rlock:
            wrapper = LibraryLock if kind is _real_lock else LibraryRLock
            return self._wrapped.setdefault(id(value), wrapper(value))  # the wrapper keeps it, and so its number
        if depth > _DEPTH or id(value) in self._seen:
            return value
        if issubclass(kind, type):  # not isinstance(): a value may stand for another and find that first
            if str(value.__module__).partition(".")[0] == self._package:
                self._seen.add(id(value))
                for name, inner in list(vars(value).items()):
                    found = self.instead_of(inner, depth + 1)
                    if found is not inner:
                        with suppress(TypeError):  # a class that cannot be changed
                            type.__setattr__(value, name, found)
        elif kind is list or kind is dict:
            if len(value) <= _LONGEST:
                self._seen.add(id(value))
                self.look_through(value, list(enumerate(value) if kind is list else value.items()), depth)
        elif issubclass(kind, threading.Condition):
            if not value._waiters:
                threading.Condition.__init__(value, self.instead_of(value._lock, depth))
        elif issubclass(kind, _HOLD_LOCKS) or str(kind.__module__).partition(".")[0] == self._package:
            self._seen.add(id(value))
            with suppress(AttributeError):  # it has none
                names = object.__getattribute__(value, "__dict__")
                self.look_through(names, list(names.items()), depth)
        elif kind is _python._PyRLock and type(value._block) is _real_lock:
            value._block = self.instead_of(value._block, depth)
        return value

    def look_through(self, holder: Any, items: list[tuple[Any, Any]], depth: int) -> None:
        for key, inner in items:
            found = self.instead_of(inner, depth + 1)
            if found is not inner:
                holder[key] = found


def share_locks(name: str, module: ModuleType) -> None:
    """Let ranks wait in virtual time for the locks that a library's module keeps; looks at each module once."""
    if _looked_at.get(name) is module:
        return
    _looked_at[name] = module
    file = vars(module).get("__file__")
    with suppress(OSError):  # its source is gone
        source = Path(file).read_bytes() if isinstance(file, str) and file.endswith(".py") else b""
        if not any(call in source for call in _MAKES_LOCKS):
            return
    names = vars(module)
    _Search(name.partition(".")[0]).look_through(names, list(names.items()), -1)


def _made(real: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        _shared_semaphore(self)

    return init


@contextmanager
def installed() -> Iterator[None]:
    """Let ranks wait in virtual time for locks of multiprocessing, those that are there and those that are made now."""
    for found in list(_registered._afterfork_registry.values()):
        if isinstance(found, _processes.SemLock):
            _shared_semaphore(found)
    real = _processes.SemLock.__init__
    _processes.SemLock.__init__ = _made(real)
    try:
        yield
    finally:
        _processes.SemLock.__init__ = real
