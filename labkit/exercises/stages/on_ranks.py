"""What the drivers of this lesson share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.other_kind import kind_for
from labkit.checks.values import integers, text
from labkit.exercises.stages.pipeline_stage import Stage, mean_squared

_MESSAGES = ("Recv", "Send", "RecvGrad", "SendGrad")


_COMPUTE = ("Forward", "Backward", "BackwardInput", "BackwardWeight")


_CHUNKS = ("ForwardChunk", "BackwardChunk")


RECORDS = (*_MESSAGES, *_COMPUTE, *_CHUNKS)


@dataclass(frozen=True)
class Message:
    """Stand-in for the lesson's records of messages."""

    peer: int
    microbatch: int


@dataclass(frozen=True)
class Compute:
    """Stand-in for the lesson's records of computations."""

    microbatch: int


def record_of(functions: Functions, data: dict[str, Any]) -> Any:
    """Return the lesson's record that the data describes."""
    stand_in: Callable[..., Any] = Message if data["kind"] in _MESSAGES else Compute
    fields = {name: value for name, value in data.items() if name != "kind"}
    return functions.get(data["kind"], stand_in)(**fields)


def data_of(record: Any) -> Value:
    """Return a record as data: kind, and peer, chunk and microbatch where it has them."""
    kind = type(record).__name__
    if kind not in RECORDS:
        return f"{record!r:.60}"
    names = ("peer", "microbatch") if kind in _MESSAGES else ("microbatch",)
    names = ("chunk", "microbatch") if kind in _CHUNKS else names
    data: dict[str, Value] = {"kind": kind}
    for name in names:
        value = getattr(record, name, None)
        data[name] = value if type(value) is int else f"{value!r:.40}"
    return data


def _listed(schedule: Any) -> Value:
    if schedule is None:
        return "nothing (None)"
    if not isinstance(schedule, list | tuple):
        return f"a {type(schedule).__name__} that is not a list"
    return [data_of(record) for record in schedule]


def listed(orders: Any) -> Value:
    """Return what came for every stage as data: its records, or in words what else; None for nothing."""
    if not isinstance(orders, list | tuple):
        return None if orders is None else f"{orders!r:.60}"
    return [_listed(order) if isinstance(order, list | tuple) else f"{order!r:.60}" for order in orders]


def write_schedules(functions: Functions, inputs: Values) -> Values:
    """Call a function that writes schedules for each stage of each pipeline.

    Inputs: function; pipelines, a list of arguments after the stage, of which the first is the number of stages.
    """
    write = functions[text(inputs, "function")]
    pipelines = cast(list[list[int]], inputs["pipelines"])
    return {"schedules": [[_listed(write(stage, *args)) for stage in range(args[0])] for args in pipelines]}


def stage_of(inputs: Values) -> Stage:
    """Return the stage that the inputs describe, with the gradients it has already."""
    stage = kind_for(Stage, inputs)(cast(Values, inputs["stage"]))
    for name, tensor in cast(dict[str, Tensor], inputs.get("before") or {}).items():
        cast(nn.Parameter, getattr(stage, name)).grad = tensor.clone()
    return stage


def outcome(stage: Stage, loss: Any) -> Values:
    """Return what a stage has done and what came of it."""
    return {
        "grads": stage.gradients(),
        "seen": stage.seen,
        "loss": _as_tensor(loss),
        "returned": type(loss).__name__,
        "attached": isinstance(loss, Tensor) and loss.requires_grad,
        "events": stage.events,
        "sizes": stage.sizes,
        "wanted_gradient": stage.wanted_gradient,
        "held": stage.most_held,
        "shared": stage.shared_room,
    }


def _as_tensor(loss: Any) -> Tensor | None:
    """Return what was returned for the loss; of a number a tensor, so that the check says what it is."""
    if isinstance(loss, Tensor):
        return loss.detach().clone()
    return torch.tensor(float(loss), dtype=torch.float64) if isinstance(loss, (int, float)) else None


def job(functions: Functions, stage: Stage, inputs: Values) -> Sequence[Any]:
    """Return the arguments of a learner's executor."""
    schedule = [record_of(functions, data) for data in cast(list[dict[str, Any]], inputs["schedule"])]
    targets = inputs.get("targets")
    sample = cast(Tensor, inputs["sample"])
    return schedule, stage, list(integers(inputs, "sizes")), sample, inputs.get("inputs"), targets, mean_squared
