"""A stopwatch for what a rank's device does."""

from __future__ import annotations

import time
from typing import Any

import torch

from labkit.launch.rank import device


class Stopwatch:
    """How long what stands between its two clicks takes: on a GPU by CUDA's events, elsewhere by the rank's clock."""

    def __init__(self) -> None:
        """Click."""
        self._events: Any = None
        if device().type == "cuda":
            make: Any = torch.cuda.Event
            self._events = make(enable_timing=True), make(enable_timing=True)
            self._events[0].record()
        self._begin_s = time.perf_counter()

    def stop(self) -> Stopwatch:
        """Click for the second time; the device may still be at it."""
        if self._events:
            self._events[1].record()
        self._end_s = time.perf_counter()
        return self

    @property
    def seconds(self) -> float:
        """How long it took; ask when the device is done."""
        if self._events:
            return float(self._events[0].elapsed_time(self._events[1])) / 1e3
        return self._end_s - self._begin_s
