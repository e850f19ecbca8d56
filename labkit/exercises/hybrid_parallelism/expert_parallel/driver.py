"""What a rank runs of expert_parallel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import my_group
from labkit.checks.on_ranks.other_kind import kind_for
from labkit.checks.values import integer, tensor


class Expert(nn.Module):
    """One matrix and a bend, which counts the tokens that it computes.

    Args:
        weight: Shape (D, D).
    """

    def __init__(self, weight: Tensor) -> None:
        nn.Module.__init__(self)  # a class of another kind has no super()
        self.weight = nn.Parameter(weight)
        self.computed = 0

    def forward(self, x: Tensor) -> Tensor:
        """Return what comes of tokens of shape (n, D)."""
        self.computed += len(x)
        return torch.tanh(x @ self.weight)


def drive(functions: Functions, inputs: Values) -> Values:
    """Return the layer's output and balance loss, and how many tokens each of this rank's experts computed.

    Inputs: groups, or none; x (this rank's tokens), router, experts (the weights of this rank's), capacity.
    """
    group = my_group(inputs)
    experts = [kind_for(Expert, inputs)(each.clone()) for each in tensor(inputs, "experts")]
    x, router = tensor(inputs, "x").clone(), tensor(inputs, "router").clone()
    with torch.no_grad():
        came: Any = functions["expert_layer"](x, router, experts, integer(inputs, "capacity"), group)
    found = list(came) if isinstance(came, list | tuple) else [came]
    out, balance = [*found, None, None][:2]
    if isinstance(balance, Tensor) and balance.numel() == 1:
        balance = balance.item()
    return {"out": out, "balance": balance, "computed": [each.computed for each in experts]}
