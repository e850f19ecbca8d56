"""How much arithmetic a rank did: what model FLOP utilisation is made of."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from labkit.timeline.columns import Table
from labkit.torch_port.backward import backward_number

_NO_BACKWARD = -1
TellsTime = Callable[[Callable[[int], object]], None]
"""Calls back with the time at which this point of the program is reached."""


class WorkDone:
    """Counters of one rank, and what they said after each optimizer step.

    Attributes:
        flops: Floating-point operations of matrix products, convolutions and attention, without those done again.
        recomputed_flops: Those of a backward pass that computes activations anew.
        ideal_ns: How long ``flops`` take at the device's peak for their dtypes.
        marks: Time, flops, recomputed_flops, ideal_ns: four numbers for each time they were noted.
    """

    def __init__(self) -> None:
        self.flops = self.recomputed_flops = 0
        self.ideal_ns = 0.0
        self.marks = array("d")

    def add(self, flops: int, ideal_ns: float) -> None:
        """Count an operator."""
        if torch.is_grad_enabled() and backward_number() != _NO_BACKWARD:
            self.recomputed_flops += flops
        else:
            self.flops += flops
            self.ideal_ns += ideal_ns

    def mark(self, now_ns: int) -> None:
        """Note what the counters say."""
        self.marks.extend((now_ns, *self.said))

    @property
    def said(self) -> tuple[float, ...]:
        """What the counters say: flops, recomputed_flops, ideal_ns."""
        return self.flops, self.recomputed_flops, self.ideal_ns


@contextmanager
def marked_at_steps(current: Callable[[], tuple[WorkDone, TellsTime] | None]) -> Iterator[None]:
    """Note every rank's counters after each of its optimizer steps.

    Args:
        current: Returns the counters of the rank whose thread calls, and what tells the time there; or None.
    """

    def after(*_: Any) -> None:
        found = current()
        if found is not None:
            work, noted = found
            said = work.said  # by now; the device may come here later
            noted(lambda now_ns: work.marks.extend((now_ns, *said)))

    handle = register_optimizer_step_post_hook(after)
    try:
        yield
    finally:
        handle.remove()


def work_table(of_ranks: Sequence[WorkDone]) -> Table:
    """Return the table "work": the counters of all ranks, each row what they said at a time."""
    marks = [np.array(work.marks, dtype=np.float64).reshape(-1, 4) for work in of_ranks]
    every = np.concatenate(marks)
    return {
        "rank": np.repeat(np.arange(len(marks), dtype=np.int64), [len(each) for each in marks]),
        **{name: every[:, place] for place, name in enumerate(("time_ns", "flops", "recomputed_flops", "ideal_ns"))},
    }
