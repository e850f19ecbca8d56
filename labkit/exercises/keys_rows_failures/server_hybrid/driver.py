"""What a rank runs of server_hybrid."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import one_group
from labkit.checks.on_ranks.other_kind import kind_for, named_for
from labkit.checks.values import named_tensors, number


class Dense(nn.Module):
    """Two layers, a bias and a frozen scale over the mean of a sample's rows, float64."""

    first: Tensor
    bias: Tensor
    frozen: Tensor
    second: Tensor

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        """Take these parameters."""
        nn.Module.__init__(self)  # it may be of another class: see kind_for
        for name, tensor in tensors.items():
            self.register_parameter(name, nn.Parameter(tensor.clone(), requires_grad=name != "frozen"))

    def forward(self, rows: Tensor) -> Tensor:
        """Return one number for each sample."""
        hidden = torch.tanh(rows.mean(1) @ self.first + self.bias) * self.frozen
        return hidden @ self.second


def _must_be_flat(call: str, what: str, given: Tensor, num_dims: int) -> None:
    """Raise unless a call is given flat keys, or a gradient for each of them."""
    if given.dim() != num_dims:
        wanted = "flat keys, shape (B * K,)" if num_dims == 1 else "one for each of the flat keys, shape (B * K, D)"
        raise ValueError(f"{call} was given {what} of shape {tuple(given.shape)}; it takes {wanted}.")


def optimizer_of(model: nn.Module, inputs: Values) -> torch.optim.Optimizer:
    """Return an optimizer that keeps state; in a group one for which a mean of steps is not the step of the mean.

    It holds all parameters and shrinks them: one that is frozen stays as it is only if it has no gradient at all.
    """
    lr = number(inputs, "lr")
    if inputs.get("group") is None:
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=0.05)
    return torch.optim.Adam(model.parameters(), lr=lr, eps=0.1, weight_decay=0.05)


def drive(functions: Functions, inputs: Values) -> Values:
    """Call hybrid_step for some steps with a table that notes what is pulled and pushed (server_hybrid)."""
    group, member = one_group(inputs)
    if not member:
        return {"member": False}
    model = kind_for(Dense, inputs)(named_tensors(inputs, "dense"))
    table = cast(Tensor, inputs["table"])
    optimizer = optimizer_of(model, inputs)
    pulled: list[Value] = []
    losses: list[Value] = []
    pushes: list[Value] = []

    def pull(keys: Tensor) -> Tensor:
        _must_be_flat("pull", "keys", keys, 1)
        pulled.append(keys.clone())
        return table[keys]

    def push(keys: Tensor, gradients: Tensor) -> None:
        _must_be_flat("push", "keys", keys, 1)
        _must_be_flat("push", "gradients", gradients, 2)
        pushes.append(torch.zeros_like(table).index_add_(0, keys, gradients.detach()))

    calls = named_for(pull, inputs), named_for(push, inputs)
    for keys, targets in zip(cast(list[Tensor], inputs["keys"]), cast(list[Tensor], inputs["targets"]), strict=True):
        loss = functions["hybrid_step"](model, optimizer, *calls, keys.clone(), targets.clone(), group)
        attached = isinstance(loss, Tensor) and loss.requires_grad
        losses.append(loss.detach().clone() if isinstance(loss, Tensor) else f"a {type(loss).__name__}")
        if attached:
            return {"problem": "attached"}
    after = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    return {"dense": after, "losses": losses, "pushes": pushes, "num_pulls": len(pulled)}
