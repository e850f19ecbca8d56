"""What a rank runs of split_layer."""

from __future__ import annotations

from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions


def drive(functions: Functions, inputs: Values) -> Values:
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
