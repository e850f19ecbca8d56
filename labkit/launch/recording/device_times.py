"""True begin and end of what a GPU carries out: CUDA events at both edges, made host times while the run goes on.

A device's clock is tied to the host's by anchors: events on a stream of their own that the host brackets, one a second.
Between two anchors time passes evenly. That keeps drift out, and the resolution of CUDA's own float32 milliseconds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from labkit.launch.recording import layout
from labkit.launch.recording.event_log import EventLog
from labkit.timeline.span import Lane
from labkit.torch_port.wrapped_group import backend_name

ANCHOR_SECONDS = 1.0
POLL_SECONDS = 0.02
CLOSE_SECONDS = 10.0
_TRIES = 5

_cuda: Any = torch.cuda
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


def region_device() -> torch.device | None:
    """Return the device whose work a named region on this thread is about, None where it is the host's."""
    if not _cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        return None
    return torch.device("cuda", torch.cuda.current_device())


class Gpu(Protocol):
    """What events are taken with: CUDA, or a stand-in in a test."""

    def mark(self, device: torch.device) -> Any:
        """Return an event on the caller's stream."""

    def mark_done(self, device: torch.device, start: Any, work: Any) -> Any:
        """Return an event that fires when this work is complete, without touching the caller's stream."""

    def mark_alone(self, device: torch.device) -> Any:
        """Return an event on a stream that nothing else uses, once the device has reached it."""

    def has_completed(self, event: Any) -> bool:
        """Return whether the device has reached an event."""

    def between_ns(self, first: Any, second: Any) -> int:
        """Return the device's time between two events."""


class Cuda:
    """CUDA's own events."""

    def __init__(self) -> None:
        self._side: dict[torch.device, Any] = {}
        self._alone: dict[torch.device, Any] = {}

    def mark(self, device: torch.device) -> Any:
        """Return an event on the caller's stream."""
        event = _Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event

    def mark_done(self, device: torch.device, start: Any, work: Any) -> Any:
        """Return an event on a side stream that waits for the work."""
        if device not in self._side:
            self._side[device] = _Stream(device)
        side, event = self._side[device], _Event(enable_timing=True)
        side.wait_event(start)
        with torch.cuda.stream(side):
            work.wait()
            event.record(side)
        return event

    def mark_alone(self, device: torch.device) -> Any:
        """Return an event on a stream of its own, after the host has waited for it."""
        if device not in self._alone:
            self._alone[device] = _Stream(device)
        event = _Event(enable_timing=True)
        event.record(self._alone[device])
        event.synchronize()
        return event

    def has_completed(self, event: Any) -> bool:
        """Return whether the device has reached an event."""
        return bool(event.query())

    def between_ns(self, first: Any, second: Any) -> int:
        """Return the device's time between two events."""
        elapsed_ms: float = first.elapsed_time(second)
        return round(elapsed_ms * 1e6)


@dataclass(frozen=True)
class _Anchor:
    event: Any
    host_ns: int


@dataclass
class _Item:
    """A call or region whose times are the device's.

    `kept` holds the call's tensors until it is complete: waiting for it on a side stream tells torch that they are
    free, and the caller's stream might be given their memory while the device still reads it.
    """

    record: int
    flags: int
    lane: int
    device: torch.device
    start: Any
    end: Any
    kept: Any = None
    call: Any = None
    anchor: int = -1
    start_ns: int = 0
    end_ns: int = 0


class DeviceTimes:
    """Events under way, resolved by a thread; and what the device still waits in, said as a wait of this rank."""

    def __init__(self, log: EventLog, gpu: Gpu | None = None) -> None:
        """Take the log to write to, and a stand-in for CUDA."""
        self._log, self._gpu = log, gpu or Cuda()
        self._lock = threading.Lock()
        self._pending: list[_Item] = []
        self._provisional: list[_Item] = []
        self._anchors: dict[torch.device, list[_Anchor]] = {}
        self._slot = -1
        self._waits_for = -1
        self._stop = threading.Event()
        self._poller: threading.Thread | None = None
        self.error_ns = 0

    def started(self, device: torch.device) -> Any:
        """Return an event on the caller's stream, to be taken just before the work."""
        if device not in self._anchors:
            self._anchors[device] = []
            self._anchor(device)
        if self._poller is None:
            self._poller = threading.Thread(target=self._poll, name="labkit-device-times", daemon=True)
            self._poller.start()
        return self._gpu.mark(device)

    def finished(self, call: Any, work: Any, kept: Any) -> None:
        """Take the event at which a call is complete on the device.

        Args:
            call: The call.
            work: Its handle, None where the caller's stream carries it out.
            kept: Its tensors.
        """
        device = call.device
        end = self._gpu.mark(device) if work is None else self._gpu.mark_done(device, call.device_start, work)
        lane = int(Lane.COMMUNICATION)
        with self._lock:
            self._pending.append(_Item(call.record, call.flags, lane, device, call.device_start, end, kept, call))

    def region_ended(self, record: int, flags: int, device: torch.device, start: Any) -> None:
        """Take the event at which a named region is complete on the device."""
        with self._lock:
            self._pending.append(_Item(record, flags, int(Lane.REGION), device, start, self._gpu.mark(device)))

    def look(self) -> None:
        """Write the times of what is complete, and say what the device waits in."""
        with self._lock:
            left = []
            for item in self._pending:
                if self._gpu.has_completed(item.end):
                    self._resolve(item)
                else:
                    left.append(item)
            self._pending = left
            self._say_wait(
                next((item for item in left if item.call is not None and self._gpu.has_completed(item.start)), None)
            )

    def tie(self) -> None:
        """Take another anchor of every device, and correct what was resolved since the last by it."""
        with self._lock:
            for device in self._anchors:
                self._anchor(device)
            for item in self._provisional:
                self._write(item)
            self._provisional.clear()

    def close(self) -> None:
        """Give what is under way up to ten seconds to complete, and tie the clocks a last time."""
        self._stop.set()
        if self._poller is not None:
            self._poller.join(CLOSE_SECONDS)
        deadline = time.monotonic() + CLOSE_SECONDS
        self.look()
        while self._pending and time.monotonic() < deadline:
            time.sleep(0.001)
            self.look()
        self.tie()

    def _poll(self) -> None:
        tied = time.monotonic()
        with contextlib.suppress(RuntimeError):  # a device that has failed answers nothing more; the rank says why
            while not self._stop.wait(POLL_SECONDS):
                self.look()
                if time.monotonic() - tied > ANCHOR_SECONDS:
                    tied = time.monotonic()
                    self.tie()

    def _resolve(self, item: _Item) -> None:
        item.anchor = len(self._anchors[item.device]) - 1
        anchor = self._anchors[item.device][-1].event
        item.start_ns = self._gpu.between_ns(anchor, item.start)
        item.end_ns = self._gpu.between_ns(anchor, item.end)
        item.kept = item.start = item.end = None
        self._provisional.append(item)
        self._write(item)

    def _write(self, item: _Item) -> None:
        start_ns, end_ns = self._host_ns(item, item.start_ns), self._host_ns(item, item.end_ns)
        self._log.set_times(item.record, start_ns, end_ns)
        self._log.end(item.record, end_ns, item.lane, item.flags | layout.DEVICE_TIME)

    def _host_ns(self, item: _Item, since_ns: int) -> int:
        """Return the host's time of a moment this long, on the device, after the item's anchor."""
        anchors, at = self._anchors[item.device], item.anchor
        while since_ns < 0 and at > 0:  # it lies between two earlier ones
            at -= 1
            since_ns += self._gpu.between_ns(anchors[at].event, anchors[at + 1].event)
        first = anchors[at]
        if at + 1 == len(anchors):  # provisional: the next anchor will say how fast the device's clock is
            return first.host_ns + since_ns
        device_ns = self._gpu.between_ns(first.event, anchors[at + 1].event)
        return first.host_ns + since_ns * (anchors[at + 1].host_ns - first.host_ns) // max(device_ns, 1)

    def _say_wait(self, item: _Item | None) -> None:
        """Say that this rank waits in the oldest call that the device has reached and not completed."""
        record = item.record if item is not None else -1
        if record == self._waits_for:
            return
        self._waits_for = record
        self._log.resumed(self._slot)
        self._slot = -1
        if item is not None and item.call is not None:
            call = item.call
            self._slot = self._log.waiting(
                time.monotonic_ns(), call.kind, call.num_bytes, call.peer, call.group, call.source, call.tag, record
            )

    def _anchor(self, device: torch.device) -> None:
        """Tie the device's clock to the host's, best of several tries."""
        best: tuple[int, _Anchor] | None = None
        for _ in range(_TRIES):
            before = time.monotonic_ns()
            event = self._gpu.mark_alone(device)
            after = time.monotonic_ns()
            if best is None or after - before < best[0]:
                best = (after - before, _Anchor(event, (before + after) // 2))
        assert best is not None
        self._anchors[device].append(best[1])
        self.error_ns = max(self.error_ns, best[0] // 2)
        self._log.set_device_error(self.error_ns)
