"""What a rank runs of run_plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import one_group
from labkit.checks.values import integers, listed, text


@dataclass(frozen=True)
class Send:
    """Stand-in for the lesson's record of the same name."""

    step: int
    chunk: int
    peer: int


@dataclass(frozen=True)
class Recv:
    """Stand-in for the lesson's record of the same name."""

    step: int
    chunk: int
    peer: int


@dataclass(frozen=True)
class Reduce:
    """Stand-in for the lesson's record of the same name."""

    step: int
    chunk: int


def _writes_into(operation: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the operation as one that must be told where its result goes."""

    def combine(chunk: Tensor, incoming: Tensor, *, out: Tensor) -> Tensor:
        return operation(chunk, incoming, out=out)

    combine.__qualname__ = "combine"  # as an error names it
    return combine


def drive(functions: Functions, inputs: Values) -> Values:
    """Hand a given plan and chunks to run_plan; return the tensor that the chunks are views of (run_plan).

    Inputs: plan, tensor, sizes (of the chunks); optional group, combine (name of a torch function).
    """
    records: dict[str, Callable[..., Any]] = {"Send": Send, "Recv": Recv, "Reduce": Reduce}
    records.update({name: functions[name] for name in records if name in functions})
    plan = []
    for entry in listed(inputs, "plan"):
        fields = {name: value for name, value in entry.items() if name != "kind"}
        plan.append(records[entry["kind"]](**fields))
    tensor = cast(Tensor, inputs["tensor"]).clone()
    chunks = list(torch.split(tensor, integers(inputs, "sizes")))
    group, member = one_group(inputs)
    more = [_writes_into(getattr(torch, text(inputs, "combine")))] if "combine" in inputs else []
    if member:
        functions["run_plan"](plan, chunks, group, *more)
    return {"base": tensor}
