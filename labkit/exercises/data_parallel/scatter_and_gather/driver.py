"""What a rank runs of scatter_and_gather."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.data_parallel.on_ranks import described, devices_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Call scatter on a batch, or gather on outputs; return what came, and gradients (scatter_and_gather).

    Inputs: devices, and batch (a dict of tensors) or outputs (a list). What came of scatter is weighed by piece, of
    gather by element, before it goes backward.
    """
    batch, devices = inputs.get("batch"), devices_of(inputs)
    watched = cast(list[Tensor], list(batch.values()) if isinstance(batch, dict) else inputs["outputs"])
    leaves = [each.clone().requires_grad_(each.is_floating_point()) for each in watched]
    if isinstance(batch, dict):
        pieces = functions["scatter"](dict(zip(batch, leaves, strict=True)), devices)
        result: dict[str, Value] = {"pieces": described(pieces)}
        parts: list[tuple[Any, Tensor]] = [
            (n + 1, t) for n, piece in enumerate(pieces if isinstance(pieces, list) else []) for t in _tensors(piece)
        ]
    else:
        whole = functions["gather"](list(leaves), devices[0])
        result = {"whole": described(whole)}
        parts = [(torch.arange(1.0, t.numel() + 1, dtype=t.dtype).reshape(t.shape), t) for t in _tensors([whole])]
    if all(device.type == "cpu" for device in devices):
        losses = [(weight * t).sum() for weight, t in parts if t.requires_grad]
        if losses:
            torch.autograd.backward(torch.stack(losses).sum())
        result["gradients"] = [leaf.grad for leaf in leaves]
    else:  # another kind of device has no numbers to bring back
        result["followed"] = all(t.requires_grad for _, t in parts if t.is_floating_point())
    return result


def _tensors(values: Any) -> list[Tensor]:
    found = values.values() if isinstance(values, dict) else values if isinstance(values, list | tuple) else [values]
    return [each for each in found if isinstance(each, Tensor)]
