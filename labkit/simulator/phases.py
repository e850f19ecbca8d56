"""Whether an optimizer takes its step: a phase of training, as a backward pass is, which the thread itself knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from labkit.simulator.state import current_rank


@contextmanager
def optimizers_watched() -> Iterator[None]:
    """Know of each rank whether an optimizer takes its step."""

    def begins(optimizer: Any, *_: Any) -> None:
        rank = current_rank()
        if rank is not None:
            if rank.simulation.trial is not None and not rank.process.stepping:
                rank.simulation.trial.step(rank, optimizer)
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
