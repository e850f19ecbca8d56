"""The handle that an asynchronous call returns, with its wait recorded."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from labkit.launch.recording import layout
from labkit.launch.recording.call import Call
from labkit.torch_port.handles import WrappedHandle

_NO_TIMEOUT = timedelta(0)


class RecordedWork(WrappedHandle):
    """A Work that stands in for another one and notes when ``wait()`` began and returned.

    Only callers in Python receive it; C++ (DDP's reducer, functional collectives) keeps the backend's own handle.
    """

    def __init__(self, inner: Any, calls: list[Call]) -> None:
        super().__init__(inner)
        self._calls = calls

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Wait for the operation and record the time that took; raises what the backend raises."""
        begin_ns = time.monotonic_ns()
        slots = [call.wait_begins(begin_ns) for call in self._calls[:1]]
        try:
            done = self._inner.wait(timeout) if timeout else self._inner.wait()
        except BaseException:
            self._finish(begin_ns, slots, layout.FAILED)
            raise
        self._finish(begin_ns, slots, 0)
        return bool(done)

    def _finish(self, begin_ns: int, slots: list[int], flags: int) -> None:
        end_ns = time.monotonic_ns()
        for slot in slots:
            self._calls[0].recorder.log.resumed(slot)
        for number, call in enumerate(self._calls):
            call.wait_returned(self._inner, begin_ns, end_ns, flags, record_wait=number == 0)

    def get_future(self) -> Any:
        """Return the future of the inner handle."""
        return self._followed(self._inner.get_future())

    def get_future_result(self) -> Any:
        """Return the future of the inner handle's result."""
        return self._followed(self._inner.get_future_result())

    def _followed(self, future: Any) -> Any:
        if self._calls:
            self._calls[0].recorder.futures.bind(future, self._calls)
        return future
