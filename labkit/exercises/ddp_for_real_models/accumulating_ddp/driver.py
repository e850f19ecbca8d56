"""What a rank runs of accumulating_ddp."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.exercises.averaging.on_ranks import train

SILENCED = "Inside no_sync of one wrapper, the backward of another wrapper was not averaged."


def drive(functions: Functions, inputs: Values) -> Values:
    """Train as `train` says; with `two`, then let a wrapper work while another is inside no_sync (accumulating_ddp)."""
    result = train(functions, inputs)
    if inputs.get("two"):
        _work_beside(functions["AccumulatingDDP"])
    return result


def _work_beside(make: Any) -> None:
    """Run a backward of one wrapper inside no_sync of another.

    Raises:
        RuntimeError: If its gradient is not the mean over the ranks.
    """
    quiet, working = (make(nn.Linear(1, 1, bias=False)) for _ in range(2))
    with quiet.no_sync():
        torch.autograd.backward(working(torch.full((1, 1), dist.get_rank() + 1.0)).sum())
        try:
            working.finish_gradient_synchronization()
        except Exception as error:
            raise RuntimeError(SILENCED) from error
    mean = torch.full((1, 1), (dist.get_world_size() + 1) / 2)
    if not all(p.grad is not None and torch.allclose(p.grad, mean) for p in working.parameters()):
        raise RuntimeError(SILENCED)
