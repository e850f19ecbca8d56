"""What a future follows from: which calls stand behind it, through then(), collect_all() and set_result() in callbacks.

The methods of ``torch._C.Future`` are wrapped, which ``torch.futures.Future`` and every future of C++ inherit, so all
waiting in Python passes here, however the future was come by. Values, errors and the order of callbacks stay torch's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

Watch = Callable[[Any, "tuple[Any, ...] | None", Callable[[Any], Any]], Any]


class Futures:
    """Knows what futures follow from, and hands each wait() to whoever watches.

    Args:
        watch: Called in place of ``future.wait()`` with the future, what it follows from (None: not known, (): nothing
            that is to be told) and torch's own wait; returns or raises what that does.

    Attributes:
        completing: Returns what a thread is about that completes a future, -1 for nothing.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._sources: WeakKeyDictionary[Any, tuple[Any, ...]] = WeakKeyDictionary()
        self._completed: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._thread = threading.local()
        self.completing: Callable[[], int] = lambda: -1
        self._when_done: Callable[[Any, Any], None] | None = None

    @property
    def in_callback(self) -> bool:
        """Return whether this thread is inside a callback of a future."""
        return getattr(self._thread, "depth", 0) > 0

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """Leave this thread's waits to torch: they are part of something that is told as a whole."""
        before, self._thread.unwatched = getattr(self._thread, "unwatched", False), True
        try:
            yield
        finally:
            self._thread.unwatched = before

    def bind(self, future: Any, sources: Iterable[Any]) -> None:
        """Note what a future follows from."""
        self._sources[future] = tuple(sources)

    def behind(self, future: Any) -> tuple[Any, ...] | None:
        """Return what a future follows from, None where that is not known."""
        return self._sources.get(future)

    def completed_by(self, future: Any) -> int:
        """Return what the thread was about that completed a future; for one that C++ completed, this thread."""
        return self._completed.get(future, self.completing())

    def when_done(self, future: Any, callback: Callable[[Any], None]) -> None:
        """Call back when the future is complete, without that counting as a callback of the learner's."""
        if self._when_done is None:
            future.add_done_callback(callback)
        else:
            self._when_done(future, callback)

    def install(self) -> Callable[[], None]:
        """Follow every future of this process from now on; return what undoes it."""
        import torch

        private: Any = torch._C
        kind: Any = private.Future
        names = ("wait", "then", "add_done_callback", "set_result")
        before = [vars(kind)[name] for name in names]
        wait, then, add_done_callback, set_result = (getattr(kind, name) for name in names)
        collect_all = private._collect_all
        self._when_done = add_done_callback

        def wait_watched(future: Any) -> Any:
            if getattr(self._thread, "unwatched", False):
                return wait(future)
            return self._watch(future, self.behind(future), wait)

        def then_followed(future: Any, callback: Any) -> Any:
            following = then(future, self._as_callback(future, callback))
            sources = self.behind(future)
            if sources is not None:
                self.bind(following, sources)
            return following

        def add_followed(future: Any, callback: Any) -> None:
            add_done_callback(future, self._as_callback(future, callback))

        def set_followed(future: Any, result: Any) -> None:
            sources = getattr(self._thread, "sources", None)
            if sources and self.behind(future) is None:
                self.bind(future, sources)
            self._completed[future] = self.completing()
            set_result(future, result)

        def collect_followed(futures: Any) -> Any:
            collected = collect_all(futures)
            known = [sources for sources in map(self.behind, futures) if sources is not None]
            if known:
                self.bind(collected, dict.fromkeys(source for sources in known for source in sources))
            return collected

        for name, method in zip(names, (wait_watched, then_followed, add_followed, set_followed), strict=True):
            method.__name__ = name
            setattr(kind, name, method)
        private._collect_all = collect_followed

        def undo() -> None:
            for name, method in zip(names, before, strict=True):
                setattr(kind, name, method)
            private._collect_all = collect_all
            self._when_done = None

        return undo

    def _as_callback(self, future: Any, callback: Any) -> Any:
        """Return the callback, with what it completes following from what the future follows from."""
        if not callable(callback):
            return callback  # torch says what is wrong
        sources = self.behind(future)

        def called(complete: Any) -> Any:
            thread = self._thread
            before = getattr(thread, "depth", 0), getattr(thread, "sources", None)
            thread.depth, thread.sources = before[0] + 1, self.behind(complete) or sources
            try:
                return callback(complete)
            finally:
                thread.depth, thread.sources = before

        return called
