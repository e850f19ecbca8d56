"""Drivers of lesson 05: call the learner's function on this rank's inputs, return what came of it as data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from labkit.checks.case import Value, Values
from labkit.checks.drivers.pipeline_stage import Stage, mean_squared
from labkit.checks.exercise import Functions

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


def call_functions(functions: Functions, inputs: Values) -> Values:
    """Call named functions with plain arguments; return their values in order."""
    calls = cast(list[dict[str, Any]], inputs["calls"])
    return {"values": [functions[call["function"]](*call["args"]) for call in calls]}


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
    try:
        return [data_of(record) for record in schedule]
    except TypeError:
        return f"a {type(schedule).__name__} that is not a list"


def write_schedules(functions: Functions, inputs: Values) -> Values:
    """Call a function that writes schedules for each stage of each pipeline.

    Inputs: function; pipelines, a list of arguments after the stage, of which the first is the number of stages.
    """
    write = functions[cast(str, inputs["function"])]
    pipelines = cast(list[list[int]], inputs["pipelines"])
    return {"schedules": [[_listed(write(stage, *args)) for stage in range(args[0])] for args in pipelines]}


def find_stuck(functions: Functions, inputs: Values) -> Values:
    """Call find_stuck with given schedules; return for each of them the stages as text with their record."""
    found: list[Value] = []
    for schedules in cast(list[list[list[dict[str, Any]]]], inputs["pipelines"]):
        records = [[record_of(functions, data) for data in schedule] for schedule in schedules]
        stuck = functions["find_stuck"](records)
        if not isinstance(stuck, dict):
            found.append(f"{stuck!r:.60} ({type(stuck).__name__})")
            continue
        found.append({str(stage): data_of(record) for stage, record in stuck.items()})
    return {"stuck": found}


def _stage_of(inputs: Values) -> Stage:
    stage = Stage(cast(Values, inputs["stage"]))
    for name, tensor in cast(dict[str, Tensor], inputs.get("before") or {}).items():
        cast(nn.Parameter, getattr(stage, name)).grad = tensor.clone()
    return stage


def _outcome(stage: Stage, loss: Any) -> Values:
    return {
        "grads": stage.gradients(),
        "seen": stage.seen,
        "loss": loss.detach().clone() if isinstance(loss, Tensor) else None,
        "returned": type(loss).__name__,
        "attached": isinstance(loss, Tensor) and loss.requires_grad,
        "events": cast(Value, stage.events),
        "sizes": cast(Value, stage.sizes),
        "wanted_gradient": cast(Value, stage.wanted_gradient),
        "held": stage.most_held,
    }


def run_one_batch(functions: Functions, inputs: Values) -> Values:
    """Call run_stage with this rank's stage and the whole batch (one_batch)."""
    stage = _stage_of(inputs)
    sizes = cast(list[int], inputs["sizes"])
    batch, targets = (_joined(inputs.get(name)) for name in ("inputs", "targets"))
    loss_fn = None if targets is None else mean_squared
    sample = cast(Tensor, inputs["sample"])
    return _outcome(stage, functions["run_stage"](stage, sample, sum(sizes), batch, targets, loss_fn))


def _joined(parts: Any) -> Tensor | None:
    return None if parts is None else torch.cat(cast(list[Tensor], parts))


def run_a_schedule(functions: Functions, inputs: Values) -> Values:
    """Call run_schedule with this rank's stage and schedule (run_schedule).

    Inputs: stage, schedule, sizes, sample; inputs on the first stage, targets on the last; optional group, before.
    """
    ranks = inputs.get("group")
    group = None if ranks is None else dist.new_group(cast(list[int], ranks))
    if ranks is not None and dist.get_rank() not in cast(list[int], ranks):
        return {"member": False}
    stage = _stage_of(inputs)
    more = {} if group is None else {"group": group}
    return _outcome(stage, functions["run_schedule"](*_job(functions, stage, inputs), **more))


def _job(functions: Functions, stage: Stage, inputs: Values) -> Sequence[Any]:
    schedule = [record_of(functions, data) for data in cast(list[dict[str, Any]], inputs["schedule"])]
    targets = inputs.get("targets")
    loss_fn = None if targets is None else mean_squared
    sample = cast(Tensor, inputs["sample"])
    return schedule, stage, list(cast(list[int], inputs["sizes"])), sample, inputs.get("inputs"), targets, loss_fn


def run_hybrid(functions: Functions, inputs: Values) -> Values:
    """Call hybrid_step on a mesh of pipelines. Inputs: as for run_schedule, and mesh, [pipelines, stages]."""
    shape = tuple(cast(list[int], inputs["mesh"]))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "pipe"))
    stage = _stage_of(inputs)
    return _outcome(stage, functions["hybrid_step"](mesh, *_job(functions, stage, inputs)))


def split_a_layer(functions: Functions, inputs: Values) -> Values:
    """Call copy_to_ranks, sum_over_ranks and split_mlp, forward and backward (split_layer)."""
    ranks = inputs.get("group")
    group = None if ranks is None else dist.new_group(cast(list[int], ranks))
    if ranks is not None and dist.get_rank() not in cast(list[int], ranks):
        return {"member": False}
    found: dict[str, Value] = {}
    for name in ("copy_to_ranks", "sum_over_ranks"):
        x = cast(Tensor, inputs["x"]).clone().requires_grad_()
        weight = cast(Tensor, inputs["weight"]).clone()
        y = functions[name](x, group)
        if not isinstance(y, Tensor):
            return {"problem": f"{name} returned {type(y).__name__}, not a tensor."}
        found[name] = y
        if y.requires_grad:
            y.backward(weight)  # type: ignore[no-untyped-call]
        found |= {f"{name} gradient": x.grad, f"{name} x": x, f"{name} weight": weight}
    tensors = cast(dict[str, Tensor], inputs["mlp"])
    columns, rows = _linear(tensors["first_weight"], tensors["first_bias"]), _linear(tensors["second_weight"], None)
    x, bias = (tensors[name].clone().requires_grad_() for name in ("x", "bias"))
    out = functions["split_mlp"](x, columns, rows, bias, group)
    if not isinstance(out, Tensor):
        return {"problem": f"split_mlp returned {type(out).__name__}, not a tensor."}
    found["split_mlp"] = out
    if out.requires_grad:
        (out * tensors["weight"]).sum().backward()  # type: ignore[no-untyped-call]
    leaves = {"x": x, "columns.weight": columns.weight, "columns.bias": columns.bias, "rows.weight": rows.weight}
    return {**found, **{f"gradient of {name}": leaf.grad for name, leaf in (leaves | {"bias": bias}).items()}}


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)
    return linear
