"""torch.cuda's events and streams for ranks with virtual devices (labkit.simulator.streams).

With ``labkit.virtual(cuda=True, stream=False)`` a rank does one thing after the other: then every stream is the one
there is, an event happens when it is recorded, and what a stream of the program's own does is done in the order of the
program.
"""

from __future__ import annotations

from typing import Any

import torch

from labkit.simulator.clock import Event
from labkit.simulator.state import VirtualRank, current_rank
from labkit.simulator.stream_queue import StreamQueue
from labkit.simulator.streams import StreamEvent

POLL_NS = 1_000
"""What asking whether something has happened costs, so that a loop that asks again makes time pass."""

NO_OVERLAP = (
    "torch.cuda.Stream: what a stream of the program's own does is done in the order of the program, not beside it; "
    "real devices may be faster."
)


def the_accelerated() -> VirtualRank:
    """Return the rank whose thread calls, which has a virtual device."""
    rank = current_rank()
    if rank is None or rank.process.accelerator is None:
        raise RuntimeError("This torch.cuda object belongs to a virtual rank, and was used outside its run.")
    return rank


class _OnRanks:
    """A class of torch.cuda as ranks find it; other threads get the real one's objects from it.

    Attributes:
        real: What stood in its place.
    """

    real: Any = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        rank = current_rank()
        if rank is None or rank.process.accelerator is None:
            return cls.real(*args, **kwargs)
        return super().__new__(cls)


class VirtualEvent(_OnRanks):
    """torch.cuda.Event in virtual time."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any):
        """Make an event that was not recorded yet."""
        if interprocess:
            raise RuntimeError("torch.cuda.Event(interprocess=True) is not modelled by the virtual cluster.")
        self._timing = enable_timing
        self._event: Any = None

    def record(self, stream: Any = None) -> None:
        """Note when the device has done what was issued to a stream so far."""
        rank = the_accelerated()
        queue = _queue(rank, stream)
        if queue is not None:
            self._event = rank.device.record_event(queue, rank.now_ns)
        else:
            self._event = Event()
            self._event.ready_ns = rank.now_ns

    def elapsed_time(self, end_event: VirtualEvent) -> float:
        """Return the milliseconds from this event to another."""
        if not (self._timing and end_event._timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._event is None or end_event._event is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end_event.query()):
            raise RuntimeError(
                "CUDA error: device not ready: elapsed_time was asked of an event that has not happened; "
                "call torch.cuda.synchronize() or end_event.synchronize() first."
            )
        return float(end_event._event.ready_ns - self._event.ready_ns) / 1e6

    def query(self) -> bool:
        """Return whether what was recorded has happened; looking takes time where it has not."""
        if self._event is None:
            return True
        rank = the_accelerated()
        rank.turn()
        if self._event.ready_ns is not None and self._event.ready_ns <= rank.now_ns:
            return True
        rank.spend(POLL_NS)
        return False

    def synchronize(self) -> None:
        """Let the host wait until what was recorded has happened."""
        if isinstance(self._event, StreamEvent):
            the_accelerated().wait_for(self._event, "Event.synchronize")

    def wait(self, stream: Any = None) -> None:
        """Let what is issued to a stream from now on wait until what was recorded has happened."""
        rank = the_accelerated()
        queue = _queue(rank, stream)
        if queue is not None and isinstance(self._event, StreamEvent):
            rank.device.wait(queue, self._event, rank.now_ns)


class AnyEvent(VirtualEvent):
    """torch.Event, which takes a device first."""

    def __init__(self, device: Any = None, **options: Any) -> None:
        """Make an event that was not recorded yet."""
        super().__init__(**options)


class VirtualStream(_OnRanks):
    """torch.cuda.Stream.

    Attributes:
        queue: What the device is to do of it; None where a rank does one thing after the other.
    """

    def __init__(self, device: Any = None, priority: int = 0, *, is_default: bool = False, **_: Any) -> None:
        """Make a stream of the rank's device."""
        rank = the_accelerated()
        accelerator, streams = rank.process.accelerator, rank.process.device
        if device is not None:
            accelerator.wants(accelerator.index(device))
        self.device, self.priority = accelerator.device, priority
        self.device_index, self.device_type = accelerator.number, 1
        if not is_default:
            accelerator.streams += 1
        self.stream_id = self.cuda_stream = 0 if is_default else accelerator.streams
        self.queue: StreamQueue | None = None
        if streams is not None:
            self.queue = streams.default if is_default else streams.add(f"stream {self.stream_id}")
        self._before: list[Any] = []

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        """Return an event, recorded now."""
        event = VirtualEvent() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: VirtualEvent) -> None:
        """Let what is issued to this stream from now on wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        """Let what is issued to this stream from now on wait for what was issued to another so far."""
        self.wait_event(stream.record_event())

    def synchronize(self) -> None:
        """Let the host wait until all that was issued to this stream is done."""
        the_accelerated().meet(self.queue, "Stream.synchronize")

    def query(self) -> bool:
        """Return whether all that was issued to this stream is done."""
        return self.record_event().query()

    def is_capturing(self) -> bool:
        """Return False: graphs are not modelled."""
        return False

    def __enter__(self) -> VirtualStream:
        rank = the_accelerated()
        self._before.append(rank.stream)
        set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        the_accelerated().stream = self._before.pop()


class StreamContext(_OnRanks):
    """``with torch.cuda.stream(s):``."""

    def __init__(self, stream: Any) -> None:
        """Choose a stream for a while; None changes nothing."""
        self._stream = stream

    def __enter__(self) -> Any:
        return self._stream if self._stream is None else self._stream.__enter__()

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.__exit__()


def default_stream(device: Any = None) -> VirtualStream:
    """Return the stream that work goes to where none is chosen."""
    accelerator = the_accelerated().process.accelerator
    if accelerator.default_stream is None:
        accelerator.default_stream = VirtualStream(is_default=True)
    stream: VirtualStream = accelerator.default_stream
    return stream


def current_stream(device: Any = None) -> VirtualStream:
    """Return the stream that this thread has chosen."""
    return the_accelerated().stream or default_stream()


def set_stream(stream: Any) -> None:
    """Choose a stream for this thread."""
    rank = the_accelerated()
    if rank.process.device is None and stream is not rank.process.accelerator.default_stream:
        rank.process.accelerator.note(NO_OVERLAP)
    rank.stream = stream


def synchronize(device: Any = None) -> None:
    """Let the host wait until the device has done all that was issued to any stream."""
    rank = the_accelerated()
    if rank.process.device is not None:
        for event in [rank.device.record_event(queue, rank.now_ns) for queue in rank.device.queues]:
            rank.wait_for(event, "torch.cuda.synchronize")


def _queue(rank: VirtualRank, stream: Any) -> StreamQueue | None:
    """Return where a stream's work is queued, that of the current one for None; None where nothing is."""
    if rank.process.device is None:
        return None
    queue: StreamQueue = rank.queue() if stream is None else stream.queue
    return queue


class DeviceContext(_OnRanks):
    """``with torch.cuda.device(1):``; the number before comes back."""

    def __init__(self, device: Any) -> None:
        """Choose a device for a while; a negative number or None changes nothing."""
        self._accelerator = the_accelerated().process.accelerator
        self.idx = -1 if device is None else self._accelerator.index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = self._accelerator.current
        if self.idx >= 0:
            self._accelerator.current = self.idx

    def __exit__(self, *_: object) -> None:
        self._accelerator.current = self.prev_idx


class DeviceOf(DeviceContext):
    """``with torch.cuda.device_of(tensor):``."""

    def __init__(self, tensor: torch.Tensor) -> None:
        """Choose the device that a tensor is on."""
        accelerator = the_accelerated().process.accelerator
        super().__init__(accelerator.number if accelerator.is_on(tensor) else None)
