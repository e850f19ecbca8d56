"""What a rank runs of loss_scaling."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer, listed, number

LARGE = 1e300
"""Entries from here on are what the gradients hold, not slopes: of a few the sum is infinite, and they are not."""


class _Optimizer:
    """Plain gradient descent that counts its steps."""

    def __init__(self, parameters: list[Tensor], lr: float) -> None:
        self.param_groups = [{"params": parameters[:1], "lr": lr}, {"params": parameters[1:], "lr": lr}]
        self.steps = 0

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        self.steps += 1
        for group in self.param_groups:
            for parameter in cast(list[Tensor], group["params"]):
                if parameter.grad is not None:
                    parameter.sub_(cast(float, group["lr"]) * parameter.grad)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear every gradient."""
        for group in self.param_groups:
            for parameter in cast(list[Tensor], group["params"]):
                parameter.grad = None if set_to_none or parameter.grad is None else torch.zeros_like(parameter)


class _TorchsOwn(torch.optim.SGD):
    """Torch's own gradient descent; it counts its steps."""

    def __init__(self, parameters: list[Tensor], lr: float) -> None:
        super().__init__([{"params": parameters[:1]}, {"params": parameters[1:]}], lr=lr)
        self.steps = 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        self.steps += 1
        super().step(closure)


def drive(functions: Functions, inputs: Values) -> Values:
    """Take steps with a scaler; some gradients are not finite (loss_scaling).

    Inputs: scale, growth_interval, slopes: for each step the gradients of two parameters. A third has none.
    torchs: the optimizer is torch's own.
    """
    parameters = [torch.ones(3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    optimizer = (_TorchsOwn if inputs.get("torchs") else _Optimizer)(parameters, 0.1)
    scaler = functions["LossScaler"](number(inputs, "scale"), integer(inputs, "growth_interval"))
    found: list[Value] = []
    for slopes in listed(inputs, "slopes"):
        for parameter in parameters:
            parameter.grad = None
        odd = [~(slope.abs() < LARGE) for slope in slopes]  # it is in backward that these come about
        finite = [slope.masked_fill(where, 0.0) for slope, where in zip(slopes, odd, strict=True)]
        loss = sum(((slope * each).sum() for slope, each in zip(finite, parameters, strict=False)), torch.ones(()))
        loss_before = loss.detach().clone()
        scaled = scaler.scaled(loss)
        asked = float(scaled.detach() / loss_before)
        scaled.backward()
        reached = all(each.grad is not None for each in parameters[: len(slopes)])
        for slope, each, where in zip(slopes, parameters, odd, strict=False):
            if each.grad is not None:
                each.grad[where] = slope[where]
        before = optimizer.steps
        said = scaler.step(optimizer)
        found.append(
            {
                "said": said if isinstance(said, bool) else f"{said!r:.40}",
                "asked": asked,
                "reached": reached,
                "loss_kept": torch.equal(loss.detach(), loss_before),
                "steps": optimizer.steps - before,
                "scale": float(scaler.scale),
                "weights": [parameter.detach().clone() for parameter in parameters],
            }
        )
    return {"steps": found}
