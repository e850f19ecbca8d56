"""What a rank runs of prefetching_loader."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer

_SECONDS = 5.0
ERROR = "this batch cannot be read"


class _Source:
    """Batches that are counted as they are fetched; which thread fetches them is remembered."""

    def __init__(self, batches: int, error_after: int | None = None) -> None:
        self.batches, self.error_after = batches, error_after
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
            yield 10 * number

    def reaches(self, count: int, seconds: float) -> bool:
        """Return whether so many have been fetched within the time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.fetched < count:
            time.sleep(0.001)
        return self.fetched >= count


class _Reader(_Source):
    """The same batches from an iterator that is no generator, as a file is one."""

    def __init__(self, batches: int, error_after: int | None = None) -> None:
        super().__init__(batches, error_after)
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
            box.append(f"raised {type(error).__name__}: {error}"[:200])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_SECONDS)
    return box[0] if box else "hangs"


def _number(value: Any) -> Value:
    return value if type(value) is int else f"{value!r:.40}"


def drive(functions: Functions, inputs: Values) -> Values:
    """Iterate to the end, into an error, and away in the middle. Inputs: batches, depth, error_after, reader."""
    kind = _Reader if inputs.get("reader") else _Source
    make, count, depth = functions["prefetched"], integer(inputs, "batches"), integer(inputs, "depth")

    def whole() -> Value:
        source = kind(count)
        came: list[Value] = [_number(each) for each in make(source, depth)]
        return {"came": came, "own_thread": threading.current_thread() not in source.threads}

    def none() -> Value:
        return [_number(each) for each in make(kind(0))]

    def failing() -> Value:
        came: list[Value] = []
        source = kind(count, integer(inputs, "error_after"))
        try:
            for each in make(source, depth):
                came.append(_number(each))
                if source.failed.wait(0.3):  # a slow loop: the error is there, and batches from before it still wait
                    time.sleep(0.01)
        except ValueError as error:
            return {"came": came, "error": str(error)}
        return {"came": came, "error": "none"}

    def left_early() -> Value:
        source = kind(count)
        batches = iter(make(source, depth))
        next(batches)
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
    for name, action in (("whole", whole), ("none", none), ("failing", failing), ("left", left_early)):
        found[name] = _bounded(action)
        if found[name] == "hangs":
            break
    stub = next((each for each in found.values() if str(each).startswith("NotImplementedError: ")), None)
    if stub is not None:
        raise NotImplementedError(str(stub).removeprefix("NotImplementedError: "))
    return found
