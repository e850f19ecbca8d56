"""A learner's server whose lock is watched: whether it is held when weights, version and record are touched.

What two calls do to each other shows only at the moment in which they meet. That a call touches what others touch, and
holds no lock, shows every time. A server with a lock of another kind, or with one more, is left alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

TAKEN_TWICE = "self.lock is held by this very call already, and it can be taken once only"
_WRITTEN = frozenset({"weight", "version"})
_READ = frozenset({"weight", "updates", "version"})
_PLAIN = type(threading.Lock())
_LOCKS = (_PLAIN, type(threading.RLock()), threading.Condition, threading.Semaphore)


class WatchedLock:
    """A lock that knows who holds it, and raises where its holder would wait for itself for ever."""

    def __init__(self) -> None:
        """Make one that is free."""
        self._lock, self._holder = threading.Lock(), 0

    @property
    def mine(self) -> bool:
        """Return whether this thread holds it."""
        return self._holder == threading.get_ident()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it; raises RuntimeError if this thread holds it and would wait."""
        if self.mine and blocking:
            raise RuntimeError(TAKEN_TWICE)
        taken = self._lock.acquire(blocking, timeout)
        if taken:
            self._holder = threading.get_ident()
        return taken

    def release(self) -> None:
        """Let it go."""
        self._holder = 0
        self._lock.release()

    def locked(self) -> bool:
        """Return whether somebody holds it."""
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


class Watch:
    """What methods of a server touched without its lock.

    Attributes:
        loose: "push writes weight", "leave reads updates", in the order in which they were first seen.
    """

    def __init__(self, server: Any, lock: type[WatchedLock] = WatchedLock, *, collections: bool = False) -> None:
        """Watch this server from now on, while a method is called; its lock becomes one of that kind.

        With `collections`, what it keeps in sets, dicts and lists of its own is watched, too.
        """
        self.loose: list[str] = []
        self._collections = collections
        self._method = ""
        locks = [name for name, value in vars(server).items() if isinstance(value, _LOCKS)]
        if locks == ["lock"] and type(server.lock) is _PLAIN:
            server.lock = self._lock = lock()
            server.__class__ = self._watched(type(server))

    @contextmanager
    def calling(self, method: str) -> Iterator[None]:
        """Note what is touched in here, as done by this method."""
        self._method = method
        try:
            yield
        finally:
            self._method = ""

    def _note(self, verb: str, name: str) -> None:
        words = f"{self._method} {verb} {name}"
        if self._method and not self._lock.mine and words not in self.loose:
            self.loose.append(words)

    def _watched(self, learners: Any) -> type:
        def read(server: Any, name: str) -> Any:
            value = learners.__getattribute__(server, name)
            kept = self._collections and not name.startswith("__") and isinstance(value, set | dict | list)
            if name in _READ or kept:
                self._note("reads", name)
            return value

        def write(server: Any, name: str, value: Any) -> None:
            if name in _WRITTEN:
                self._note("writes", name)
            learners.__setattr__(server, name, value)

        members = {"__slots__": (), "__getattribute__": read, "__setattr__": write}
        return type(learners.__name__, (learners,), members)
