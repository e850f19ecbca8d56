"""In which phase of a training step an operator runs: a backward pass, an optimizer's step, or neither."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from labkit.simulator.state import VirtualRank, current_rank
from labkit.timeline.phases import BACKWARD, OPTIMIZER


def phase_of(rank: VirtualRank, backward: int) -> str:
    """Return the phase that a rank's thread is in, "" where only a named region can tell.

    Args:
        rank: The rank.
        backward: The backward pass that the thread runs, -1 for none.
    """
    if backward != -1:
        return BACKWARD
    return OPTIMIZER if rank.process.stepping else ""


@contextmanager
def optimizers_watched() -> Iterator[None]:
    """Know of each rank whether an optimizer takes its step."""

    def begins(*_: Any) -> None:
        rank = current_rank()
        if rank is not None:
            rank.process.stepping = True

    def ends(*_: Any) -> None:
        rank = current_rank()
        if rank is not None:
            rank.process.stepping = False

    handles = register_optimizer_step_pre_hook(begins), register_optimizer_step_post_hook(ends)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
