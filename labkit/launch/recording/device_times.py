"""True begin and end of calls that a GPU carries out: CUDA events around them, turned into host times later."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from labkit.launch.recording import layout
from labkit.launch.recording.event_log import EventLog
from labkit.timeline.span import Lane
from labkit.torch_port.wrapped_group import backend_name

RESOLVE_EVERY = 64
CLOSE_SECONDS = 10.0

_Event: Any = torch.cuda.Event
_Stream: Any = torch.cuda.Stream


def nccl_device(group: Any, arguments: list[Any]) -> torch.device | None:
    """Return the device of a call that NCCL carries out on a stream, None where the host sees the true times."""
    value: Any = arguments[0] if arguments else None
    while isinstance(value, (list, tuple)):
        value = value[0] if value else None
    if not isinstance(value, torch.Tensor) or not value.is_cuda or torch.cuda.is_current_stream_capturing():
        return None
    return value.device if backend_name(group, value.device) == "nccl" else None


@dataclass(frozen=True)
class _Pending:
    record: int
    flags: int
    device: torch.device
    start: Any
    end: Any


class DeviceTimes:
    """Events of calls under way, and one anchor per device that ties its clock to the host's.

    The begin of a call is when the caller's stream reached it, its end when the backend's stream finished it; a side
    stream waits for the latter, so the caller's stream is left alone.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._pending: list[_Pending] = []
        self._anchors: dict[torch.device, tuple[Any, int]] = {}
        self._streams: dict[torch.device, Any] = {}
        self.error_ns = 0

    def started(self, device: torch.device) -> Any:
        """Return an event on the caller's stream, to be taken just before the call."""
        if device not in self._anchors:
            self._anchor(device)
        event = _Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event

    def finished(self, call: Any, work: Any) -> None:
        """Take the event at which this work is complete on the device."""
        device = call.device
        end = _Event(enable_timing=True)
        if work is None:
            end.record(torch.cuda.current_stream(device))
        else:
            if device not in self._streams:
                self._streams[device] = _Stream(device)
            side = self._streams[device]
            side.wait_event(call.device_start)
            with torch.cuda.stream(side):
                work.wait()
                end.record(side)
        self._pending.append(_Pending(call.record, call.flags, device, call.device_start, end))
        if len(self._pending) % RESOLVE_EVERY == 0:
            self.resolve(wait=False)

    def resolve(self, *, wait: bool) -> None:
        """Write the times of what is complete; with wait, give the rest up to ten seconds to become so."""
        deadline = time.monotonic() + CLOSE_SECONDS
        left: list[_Pending] = []
        pending, self._pending = self._pending, left
        for item in pending:
            while wait and not item.end.query() and time.monotonic() < deadline:
                time.sleep(0.001)
            if not item.end.query():
                left.append(item)
                continue
            anchor, host_ns = self._anchors[item.device]
            start_ns = host_ns + round(anchor.elapsed_time(item.start) * 1e6)
            end_ns = host_ns + round(anchor.elapsed_time(item.end) * 1e6)
            self._log.set_times(item.record, start_ns, end_ns)
            self._log.end(item.record, end_ns, int(Lane.COMMUNICATION), item.flags | layout.DEVICE_TIME)

    def _anchor(self, device: torch.device) -> None:
        """Tie the device's clock to the host's: an event the host waits for, best of several tries."""
        best: tuple[int, Any, int] | None = None
        for _ in range(5):
            torch.cuda.synchronize(device)
            event = _Event(enable_timing=True)
            before = time.monotonic_ns()
            event.record(torch.cuda.current_stream(device))
            event.synchronize()
            after = time.monotonic_ns()
            if best is None or after - before < best[0]:
                best = (after - before, event, (before + after) // 2)
        assert best is not None
        self._anchors[device] = (best[1], best[2])
        self.error_ns = max(self.error_ns, best[0] // 2)
