"""A GPU that is none: events that come when told, on a clock that runs away from the host's."""

from __future__ import annotations

import time
from typing import Any

import torch

DEVICE = torch.device("cuda", 0)
AHEAD_NS = 10**15
DRIFT = 0.01
"""A hundred times what real clocks do, so that a test of a second shows what a lesson would see after minutes."""


class Event:
    """An event of the stand-in: when it comes, on the host's clock; None until somebody says so."""

    def __init__(self, host_ns: int | None) -> None:
        self.host_ns = host_ns


class StandInGpu:
    """What DeviceTimes takes events with."""

    def mark(self, device: torch.device) -> Event:
        return Event(time.monotonic_ns())

    def mark_done(self, device: torch.device, start: Event, work: Any) -> Event:
        done: Event = work.done
        return done

    def mark_alone(self, device: torch.device) -> Event:
        return Event(time.monotonic_ns())

    def has_completed(self, event: Event) -> bool:
        return event.host_ns is not None and event.host_ns <= time.monotonic_ns()

    def between_ns(self, first: Event, second: Event) -> int:
        assert first.host_ns is not None
        assert second.host_ns is not None
        return round((second.host_ns - first.host_ns) * (1 + DRIFT))


class Work:
    """The handle of a call that the stand-in carries out."""

    def __init__(self) -> None:
        self.done = Event(None)

    def complete(self) -> int:
        self.done.host_ns = time.monotonic_ns()
        return self.done.host_ns
