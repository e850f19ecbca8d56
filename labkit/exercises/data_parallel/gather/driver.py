"""What a rank runs of gather."""

from __future__ import annotations

from typing import cast

import torch

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.data_parallel.nested_values import build, describe, tensors_in
from labkit.exercises.data_parallel.on_ranks import gradients, watched


def drive(functions: Functions, inputs: Values) -> Values:
    """Call gather; return the whole, and each output's gradients when element i counts i + 1 times (gather)."""
    outputs = [build(tree) for tree in cast(list[Value], inputs["outputs"])]
    leaves = watched(outputs) if inputs.get("gradients") else []
    whole = functions["gather"](outputs, torch.device(cast(str, inputs["device"])))
    result: dict[str, Value] = {"whole": describe(whole)}
    if leaves:
        count = [t.numel() for t in tensors_in(whole)]
        weights = [torch.arange(1.0, n + 1, dtype=torch.float64) for n in count]
        parts = zip(tensors_in(whole), weights, strict=True)
        total = sum((t.reshape(-1) * weight).sum() for t, weight in parts if t.requires_grad)
        result["gradients"] = gradients(total, leaves)
    return result
