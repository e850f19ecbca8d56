"""The hard model, its state and gradients as plain values, and the plainest optimizer."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.on_ranks.hard_model import HardModel, hard_model


def model_of(inputs: Values) -> HardModel:
    """Return this rank's model; `seed` may differ between ranks."""
    options = cast(dict[str, Any], inputs.get("model", {}))
    return hard_model(cast(int, inputs["seed"]), **options)


def state_of(model: nn.Module) -> dict[str, Value]:
    """Return parameters and buffers by name."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: tensor.detach().clone() for name, tensor in named.items()}


def gradients_of(model: nn.Module) -> dict[str, Value]:
    """Return the gradient of each parameter by name, None where there is none."""
    return {name: None if p.grad is None else p.grad.detach().clone() for name, p in model.named_parameters()}


def loss_of(output: object, target: Tensor) -> Tensor:
    """Return the mean squared error.

    Raises:
        TypeError: If the output is no tensor: a learner's forward returned nothing, say.
    """
    if not isinstance(output, Tensor):
        came = "nothing (None)" if output is None else f"a {type(output).__name__}"
        raise TypeError(f"calling your model returned {came}, not a tensor: what does its forward return?")
    return nn.functional.mse_loss(output, target)


class PlainSGD:
    """Stochastic gradient descent; torch.optim would first load its compiler, seconds in each fresh rank."""

    def __init__(self, model: nn.Module, lr: float) -> None:
        self.param_groups = [{"params": [p for p in model.parameters() if p.requires_grad], "lr": lr}]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with zeros."""
        for group in self.param_groups:
            for parameter in cast(list[nn.Parameter], group["params"]):
                if parameter.grad is not None:
                    parameter.grad = None if set_to_none else torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in cast(list[nn.Parameter], group["params"]):
                if parameter.grad is not None:
                    parameter.sub_(cast(float, group["lr"]) * parameter.grad)
