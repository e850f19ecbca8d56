"""Events and streams of virtual CUDA devices.

A device does one thing after the other, so every stream is the one there is. An event happens when the device has run
what was issued before it; without ``labkit.virtual(stream=True)`` that is when it is recorded.
What a program gives a stream of its own is done, in the order of the program; that it would overlap is not modelled.
"""

from __future__ import annotations

from typing import Any

import torch

from labkit.simulator.state import VirtualRank, current_rank

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
        self._at_ns: int | None = None

    def record(self, stream: Any = None) -> None:
        """Note when the device has run what was issued so far."""
        rank = the_accelerated()
        self._at_ns = max(rank.now_ns, rank.process.stream_ns)

    def elapsed_time(self, end_event: VirtualEvent) -> float:
        """Return the milliseconds from this event to another."""
        if not (self._timing and end_event._timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._at_ns is None or end_event._at_ns is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at_ns - self._at_ns) / 1e6

    def query(self) -> bool:
        """Return whether what was recorded has happened."""
        return self._at_ns is None or self._at_ns <= the_accelerated().now_ns

    def synchronize(self) -> None:
        """Wait until what was recorded has happened."""
        rank = the_accelerated()
        if self._at_ns is not None and self._at_ns > rank.now_ns:
            rank.spend(self._at_ns - rank.now_ns)

    def wait(self, stream: Any = None) -> None:
        """Return at once: what was recorded has happened."""


class AnyEvent(VirtualEvent):
    """torch.Event, which takes a device first."""

    def __init__(self, device: Any = None, **options: Any) -> None:
        """Make an event that was not recorded yet."""
        super().__init__(**options)


class VirtualStream(_OnRanks):
    """torch.cuda.Stream: one of many names for the one order a rank works in."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        """Make a stream of the rank's device."""
        rank = the_accelerated()
        accelerator = rank.process.accelerator
        if device is not None:
            accelerator.wants(accelerator.index(device))
        self.device, self.priority = accelerator.device, priority
        self.device_index, self.device_type = accelerator.number, 1
        accelerator.streams += 1
        self.stream_id = self.cuda_stream = accelerator.streams

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        """Return an event, recorded now."""
        event = VirtualEvent() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: VirtualEvent) -> None:
        """Return at once: what was recorded has happened."""

    def wait_stream(self, stream: Any) -> None:
        """Return at once: what came before is done."""

    def synchronize(self) -> None:
        """Wait until what came before is done."""
        the_accelerated().meet()

    def query(self) -> bool:
        """Return whether what came before is done."""
        rank = the_accelerated()
        return rank.process.stream_ns <= rank.now_ns

    def is_capturing(self) -> bool:
        """Return False: graphs are not modelled."""
        return False

    def __enter__(self) -> VirtualStream:
        accelerator = the_accelerated().process.accelerator
        accelerator.entered.append(accelerator.stream)
        set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        accelerator = the_accelerated().process.accelerator
        accelerator.stream = accelerator.entered.pop()


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
        accelerator.default_stream = VirtualStream()
    stream: VirtualStream = accelerator.default_stream
    return stream


def current_stream(device: Any = None) -> VirtualStream:
    """Return the stream that is chosen."""
    return the_accelerated().process.accelerator.stream or default_stream()


def set_stream(stream: Any) -> None:
    """Choose a stream."""
    accelerator = the_accelerated().process.accelerator
    if stream is not accelerator.default_stream:
        accelerator.note(NO_OVERLAP)
    accelerator.stream = stream


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
