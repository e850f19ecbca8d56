"""What a rank runs of uneven_inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.model_state import PlainSGD, loss_of, model_of, state_of
from labkit.checks.values import number, tensors
from labkit.exercises.averaging.on_ranks import cutter


def drive(functions: Functions, inputs: Values) -> Values:
    """Train with lists of batches of unequal length, and then with none on any rank (uneven_inputs).

    Inputs: seed, model, lr, x and y (one tensor for each batch).
    """
    model = model_of(inputs)
    wrapped = functions["MiniDDP"](model)
    optimizer = PlainSGD(model, number(inputs, "lr"))
    batches = list(zip(tensors(inputs, "x"), tensors(inputs, "y"), strict=True))
    loss: Callable[[Tensor, Tensor], Tensor] = loss_of
    cut = cutter()
    cut()
    steps = functions["train_uneven"](wrapped, batches, loss, optimizer)
    cut()
    end = state_of(model)
    none: object = 0
    if _all_took_steps(steps):  # what took none may never end where nobody has a batch
        none = functions["train_uneven"](wrapped, [], loss, optimizer)
        cut()
    return {"steps": _count(steps), "end": end, "none": _count(none)}


def _all_took_steps(steps: object) -> bool:
    took = torch.tensor(int(type(steps) is int and steps > 0))
    dist.all_reduce(took, dist.ReduceOp.MIN, group=dist.new_group())
    return bool(took)


def _count(steps: object) -> Value:
    return steps if type(steps) is int else f"{steps!r:.60}"
