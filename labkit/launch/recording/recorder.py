"""What one rank writes down: calls, waits, named regions and the learner's line each came from."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from labkit.launch.recording import layout
from labkit.launch.recording.event_log import EventLog
from labkit.launch.recording.future_waits import wait_recorded
from labkit.timeline.span import Lane, region_kind
from labkit.torch_port.followed_futures import Futures

if TYPE_CHECKING:
    from labkit.launch.recording.device_times import DeviceTimes

_LABKIT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep  # noqa: PTH120, PTH100
_REGION = int(Lane.REGION)


class Recorder:
    """Writes the calls of one rank to its event log; every method may be called from any thread."""

    def __init__(self, log: EventLog, rank: int, library_paths: tuple[str, ...] = ()) -> None:
        self.log = log
        self.rank = rank
        self.pid = os.getpid()
        self.paused = False
        self._closed = False
        self._foreign = (_LABKIT, "<frozen", contextlib.__file__, threading.__file__, *library_paths)
        # Keyed by id: hashing a code object hashes all it holds. The list keeps the ids from being used again.
        self._is_foreign: dict[int, bool] = {}
        self._sources: dict[tuple[int, int], int] = {}
        self._seen: list[CodeType] = []
        self.device_times: DeviceTimes | None = None
        self.futures = Futures(lambda future, calls, wait: wait_recorded(self, future, calls, wait))

    @property
    def active(self) -> bool:
        """Return whether to record: the log is open, and this is the process it belongs to, not a fork of it."""
        return not self._closed and not self.paused and os.getpid() == self.pid

    def source_and_entry(self, frame: FrameType | None, entries: dict[int, str]) -> tuple[int, str]:
        """Return the interned file:line of the first frame outside torch and labkit, and the entry passed on the way.

        Args:
            frame: Where to start.
            entries: id of the code of torch's functions that tell how the call was meant, such as ``dist.send``.
        """
        entry = ""
        while frame is not None:
            code = frame.f_code
            identity = id(code)
            foreign = self._is_foreign.get(identity)
            if foreign is None:
                self._seen.append(code)
                foreign = self._is_foreign[identity] = code.co_filename.startswith(self._foreign)
            if not foreign:
                key = (identity, frame.f_lineno)
                source = self._sources.get(key)
                if source is None:
                    source = self._sources[key] = self.log.intern(f"{code.co_filename}:{frame.f_lineno}")
                return source, entry
            if identity in entries:
                entry = entries[identity]
            frame = frame.f_back
        return 0, entry

    def span(self, name: str, kind: str) -> Region:
        """Return a context manager that records its body as one span."""
        return Region(self, name, region_kind(kind), of_device=kind != "host")

    def times_of_devices(self) -> DeviceTimes:
        """Return what turns events of devices into times."""
        if self.device_times is None:
            from labkit.launch.recording.device_times import DeviceTimes

            self.device_times = DeviceTimes(self.log)
        return self.device_times

    def close(self) -> None:
        """Resolve device times and note the orderly end."""
        if self.device_times is not None:
            self.device_times.close()
        self._closed = True
        self.log.close()


class Region:
    """A named region, ``with recorder.span("forward", "compute"):``; one that raises is recorded too."""

    __slots__ = ("_device", "_index", "_kind", "_name", "_of_device", "_recorder", "_start")

    def __init__(self, recorder: Recorder, name: str, kind: str, *, of_device: bool) -> None:
        self._recorder, self._name, self._kind, self._of_device = recorder, name, kind, of_device
        self._index = -1
        self._device: Any = None
        self._start: Any = None

    def __enter__(self) -> None:
        recorder = self._recorder
        if not recorder.active:
            return
        log = recorder.log
        source, _ = recorder.source_and_entry(sys._getframe(1), {})
        self._index = log.begin(
            time.monotonic_ns(), _REGION, log.intern(self._kind), log.intern(self._name), source=source
        )
        if self._of_device and "torch.cuda" in sys.modules:
            from labkit.launch.recording.device_times import region_device

            self._device = region_device()
            if self._device is not None:
                self._start = recorder.times_of_devices().started(self._device)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        flags = layout.FAILED if kind else 0
        self._recorder.log.end(self._index, time.monotonic_ns(), _REGION, flags)
        if self._start is not None and kind is None and self._index >= 0:
            self._recorder.times_of_devices().region_ended(self._index, flags, self._device, self._start)
        self._index, self._start = -1, None
