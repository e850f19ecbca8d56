"""Drivers of lesson 02: call the learner's function on this rank's inputs, return what is there afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.torch_port.tensors import version_of


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


def view_of(base: Tensor, layout: str) -> Tensor:
    """Return the view of `base` that the learner's function is given."""
    if layout == "plain":
        return base
    if layout == "transposed":
        return base.t()
    if layout == "every other":
        return base[::2]
    if layout == "column":
        return base[:, 1]
    if layout == "inner rows":
        return base[1:-1]
    raise ValueError(f"no layout {layout!r}")


def _group_of(inputs: Values) -> tuple[Any, bool]:
    """Return the group to use (None for the default one) and whether this rank is in it; every rank calls this."""
    ranks = inputs.get("group")
    if ranks is None:
        return None, True
    members = cast(list[int], ranks)
    return dist.new_group(members), dist.get_rank() in members


def call_functions(functions: Functions, inputs: Values) -> Values:
    """Call named functions with plain arguments; return their values in order."""
    calls = cast(list[dict[str, Any]], inputs["calls"])
    return {"values": [functions[call["function"]](*call["args"]) for call in calls]}


def call_ring_plan(functions: Functions, inputs: Values) -> Values:
    """Call ring_plan for each rank of each world size; return the plans as plain data (ring_plan)."""
    sizes = cast(list[int], inputs["world_sizes"])
    plan_of = functions["ring_plan"]
    return {"plans": [[_plan_data(plan_of(rank, size)) for rank in range(size)] for size in sizes]}


def _plan_data(plan: Any) -> Value:
    if plan is None:
        return "nothing (None)"
    try:
        records = list(plan)
    except TypeError:
        return f"a {type(plan).__name__} that is not a list"
    return [_record_data(record) for record in records]


def _record_data(record: Any) -> Value:
    kind = type(record).__name__
    fields = {name: getattr(record, name, None) for name in ("step", "chunk", "peer")}
    data: dict[str, Value] = {"kind": kind}
    for name, value in fields.items():
        if name == "peer" and kind == "Reduce":
            continue
        data[name] = value if type(value) is int else f"{value!r:.40}"
    return data


def run_a_plan(functions: Functions, inputs: Values) -> Values:
    """Hand a given plan and chunks to run_plan; return the tensor that the chunks are views of (run_plan).

    Inputs: plan, tensor, sizes (of the chunks); optional group, combine (name of a torch function).
    """
    records: dict[str, Callable[..., Any]] = {"Send": Send, "Recv": Recv, "Reduce": Reduce}
    records.update({name: functions[name] for name in records if name in functions})
    plan = []
    for entry in cast(list[dict[str, Any]], inputs["plan"]):
        fields = {name: value for name, value in entry.items() if name != "kind"}
        plan.append(records[entry["kind"]](**fields))
    tensor = cast(Tensor, inputs["tensor"]).clone()
    chunks = list(torch.split(tensor, cast(list[int], inputs["sizes"])))
    group, member = _group_of(inputs)
    more = [getattr(torch, cast(str, inputs["combine"]))] if "combine" in inputs else []
    if member:
        functions["run_plan"](plan, chunks, group, *more)
    return {"base": tensor}


def all_reduce_in_place(functions: Functions, inputs: Values) -> Values:
    """Call an in-place all-reduce on a view of this rank's tensor; return the whole tensor.

    Inputs: tensor, layout; optional group (global ranks; others do not call), args (further positional arguments),
    catch (the ValueError that is asked for is brought back instead of raised).
    """
    (function,) = functions.values()
    base = cast(Tensor, inputs["tensor"]).clone()
    view = view_of(base, cast(str, inputs.get("layout", "plain")))
    group, member = _group_of(inputs)
    if not member:
        return {"base": base, "returned": "None", "raised": ""}
    keywords = {} if group is None else {"group": group}
    arguments = cast(list[Any], inputs.get("args", []))
    if not inputs.get("catch"):
        returned = function(view, *arguments, **keywords)
        return {"base": base, "returned": type(returned).__name__, "raised": ""}
    try:
        returned = function(view, *arguments, **keywords)
    except ValueError as error:
        return {"base": base, "returned": "None", "raised": f"{type(error).__name__}: {error}"[:400]}
    return {"base": base, "returned": type(returned).__name__, "raised": ""}


def all_reduce_as_torch_does(functions: Functions, inputs: Values) -> Values:
    """Call a drop-in for dist.all_reduce on every rank, in the group or not; return the whole tensor.

    Beside it: what came back, whether it has a wait(), whether the tensor was written to at all.

    Inputs: tensor, layout, op ("SUM", ...; absent: the default), group, async (whether to ask for a work object).
    """
    base = cast(Tensor, inputs["tensor"]).clone()
    view = view_of(base, cast(str, inputs.get("layout", "plain")))
    group, _ = _group_of(inputs)
    keywords: dict[str, Any] = {} if group is None else {"group": group}
    if "op" in inputs:
        keywords["op"] = getattr(dist.ReduceOp, cast(str, inputs["op"]))
    if inputs.get("async"):
        keywords["async_op"] = True
    version = version_of(base)
    returned = functions["ring_all_reduce"](view, **keywords)
    can_wait = callable(getattr(returned, "wait", None))
    if inputs.get("async") and can_wait:
        returned.wait()
    written = version_of(base) != version
    return {"base": base, "returned": type(returned).__name__, "can_wait": can_wait, "written": written}


def exchange_pieces(functions: Functions, inputs: Values) -> Values:
    """Call all_to_all with this rank's pieces; return outputs and inputs as they are afterwards (all_to_all).

    Outputs are the tensors that were handed in; beside them the places where the list holds another one now.

    Inputs: pieces (one tensor for each rank of the group), sizes (of what each of them sends here), fill, group.
    """
    pieces = [piece.clone() for piece in cast(list[Tensor], inputs["pieces"])]
    fill = cast(float, inputs["fill"])
    group, member = _group_of(inputs)
    if not member:
        return {"outputs": [], "inputs": cast(Value, pieces)}
    dtype = cast(list[Tensor], inputs["pieces"])[0].dtype
    outputs = [torch.full((size,), fill, dtype=dtype) for size in cast(list[int], inputs["sizes"])]
    keywords = {} if group is None else {"group": group}
    given = list(outputs)
    functions["all_to_all"](outputs, pieces, **keywords)
    replaced = [index for index, tensor in enumerate(given) if index < len(outputs) and outputs[index] is not tensor]
    return {"outputs": cast(Value, given), "inputs": cast(Value, pieces), "replaced": cast(Value, replaced)}
