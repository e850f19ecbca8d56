"""What the drivers of this lesson share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.values import texts


def devices_of(inputs: Values) -> list[torch.device]:
    """Return the devices that the inputs name."""
    return [torch.device(name) for name in texts(inputs, "devices")]


def described(value: Any) -> Value:
    """Return a value as one that crosses the line; a tensor of another device becomes {"meta": its shape}."""
    if isinstance(value, Tensor):
        return value.detach().clone() if value.device.type == "cpu" else {value.device.type: list(value.shape)}
    if isinstance(value, dict):
        return {str(key): described(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [described(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return f"a {type(value).__name__}"
