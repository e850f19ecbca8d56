"""What a rank runs of prefetching_loader.

Where another rank stands opposite, it gives the batches of the first loop, each while the loop holds the one before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.opposite import Ask, asked, asker, give
from labkit.checks.on_ranks.raised import raised, stands_in
from labkit.checks.values import integer, listed

_SECONDS = 5.0
NO_BATCH = "ended before its first batch"
ERROR = "this batch cannot be read"
HANGS = "did not end"
_READ, _HELD = 1, 2
_LAST_WORD = 0.02


class _Source:
    """Batches that are counted as they are fetched; which thread fetches them is remembered."""

    def __init__(self, batches: int, error_after: int | None = None, ask: Ask | None = None) -> None:
        self.batches, self.error_after, self.ask = batches, error_after, ask
        self.fetched = 0
        self.failed = threading.Event()
        self.threads: set[threading.Thread] = set()

    def __iter__(self) -> Iterator[int]:
        for number in range(self.batches):
            self.threads.add(threading.current_thread())
            if self.error_after == number:
                self.failed.set()
                raise ValueError(ERROR)
            self.fetched += 1
            try:
                yield int(self.ask(_READ, number)) if self.ask else 10 * number
            except GeneratorExit:
                time.sleep(_LAST_WORD)  # so does a file that is left: its thread is alive, and puts nothing more
                raise
        time.sleep(_LAST_WORD)  # as a file is closed: the loop comes to wait for the next batch, and there is none

    def reaches(self, count: int, seconds: float) -> bool:
        """Return whether so many have been fetched within the time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.fetched < count:
            time.sleep(0.001)
        return self.fetched >= count


class _Reader(_Source):
    """The same batches from an iterator that is no generator, as a file is one."""

    def __init__(self, batches: int, error_after: int | None = None, ask: Ask | None = None) -> None:
        super().__init__(batches, error_after, ask)
        self._rest = super().__iter__()

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        return next(self._rest)


def _bounded(action: Callable[[], Value]) -> Value:
    """Return what the action returned, or words for an action that hangs or fails."""
    box: list[Value] = []

    def run() -> None:
        try:
            box.append(action())
        except NotImplementedError as error:
            box.append(f"NotImplementedError: {error}")
        except Exception as error:
            box.append(f"raised {raised(error)}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_SECONDS)
    return box[0] if box else f"{HANGS}{stands_in(thread)}"


def _number(value: Any) -> Value:
    return value if type(value) is int else f"{value!r:.40}"


def _stand_opposite(gives: list[int], held: list[float]) -> Values:
    """Give each batch while the loop holds the one before, and let the loop go on once the next is asked for."""
    waiting: dict[tuple[int, int], int] = {}
    come: set[tuple[int, int]] = set()
    for tag, what, number in asked(2 * len(gives)):
        come.add((what, number))
        waiting[what, number] = tag
        for (kind, each), to in list(waiting.items()):
            after = (_HELD, each - 1) if kind == _READ else (_READ, each + 1)
            if after in come or after in ((_HELD, -1), (_READ, len(gives))):
                del waiting[kind, each]
                give(to, gives[each] if kind == _READ else held[each])
    return {"gave": 2 * len(gives)}


def drive(functions: Functions, inputs: Values) -> Values:
    """Iterate to the end, into an error, away in the middle, and over batches of None and 0.

    Inputs: batches, depth, error_after; optional reader, and opposite: another rank gives the batches of the loop to
    the end. Its inputs are gives, and held: what the loop is given for each batch it holds.
    """
    if "gives" in inputs:
        return _stand_opposite(listed(inputs, "gives"), listed(inputs, "held"))
    ask = asker() if inputs.get("opposite") else None
    kind = _Reader if inputs.get("reader") else _Source
    count, depth = integer(inputs, "batches"), integer(inputs, "depth")

    def make(source: _Source, *depth: int) -> Any:
        batches = functions["prefetched"](source, *depth)
        if not isinstance(batches, Iterable):
            raise TypeError(f"prefetched returned a {type(batches).__name__}, not batches to loop over: does it yield?")
        return batches

    def whole() -> Value:
        source = kind(count, None, ask)
        came: list[Value] = []
        held: list[Value] = []
        for number, each in enumerate(make(source, depth)):
            came.append(_number(each))
            if ask:
                held.append(ask(_HELD, number))
        seen: dict[str, Value] = {"came": came, "own_thread": threading.current_thread() not in source.threads}
        seen["num_threads"] = len(source.threads)
        return seen | ({"held": held} if ask else {})

    def none() -> Value:
        return [_number(each) for each in make(kind(0))]

    def odd() -> Value:
        return [_number(each) for each in make(cast(Any, [None, 0]))]

    def failing() -> Value:
        came: list[Value] = []
        source = kind(count, integer(inputs, "error_after"))
        try:
            for number, each in enumerate(make(source, depth)):
                came.append(_number(each))
                near = number + depth + 1 >= integer(inputs, "error_after")  # the thread may come to the error by now
                if near and source.failed.wait(0.3):  # a slow loop: batches from before the error still wait
                    time.sleep(0.01)
        except ValueError as error:
            return {"came": came, "error": str(error)}
        return {"came": came, "error": "none"}

    def left_early() -> Value:
        source = kind(count)
        batches = iter(make(source, depth))
        if next(batches, None) is None:
            return NO_BATCH
        ahead = source.reaches(2, _SECONDS / 2)
        source.reaches(depth + 3, 0.3)  # one was taken, depth wait, one may be in the thread's hand
        fetched = source.fetched
        cast(Any, batches).close()
        return {
            "ahead": ahead,
            "fetched": fetched,
            "alive": any(thread.is_alive() and thread is not threading.current_thread() for thread in source.threads),
        }

    found: dict[str, Value] = {}
    loops = (("whole", whole), ("none", none), ("failing", failing), ("left", left_early), ("odd", odd))
    for name, action in loops:
        found[name] = _bounded(action)
        if str(found[name]).startswith(HANGS):
            break
    stub = next((each for each in found.values() if str(each).startswith("NotImplementedError: ")), None)
    if stub is not None:
        raise NotImplementedError(str(stub).removeprefix("NotImplementedError: "))
    return found
