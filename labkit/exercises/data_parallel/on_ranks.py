"""What the drivers of this lesson share."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.exercises.data_parallel.nested_values import describe, tensors_in


def devices_of(inputs: Values) -> list[torch.device]:
    """Return the devices that the inputs name."""
    return [torch.device(name) for name in cast(list[str], inputs["devices"])]


def watched(value: Any) -> list[Tensor]:
    """Return the tensors of a value that can have a gradient, which they now ask for."""
    return [tensor.requires_grad_() for tensor in tensors_in(value) if tensor.is_floating_point()]


def gradients(total: Any, leaves: list[Tensor]) -> list[Value]:
    """Return the gradients of the leaves under a total; None where it does not depend on one."""
    if isinstance(total, Tensor) and total.requires_grad:
        torch.autograd.backward(total)
    return [leaf.grad for leaf in leaves]


def describe_list(value: Any) -> Value:
    """Return a list or tuple of numbers as a list, and anything else described."""
    return [describe(each) for each in value] if isinstance(value, list | tuple) else describe(value)
