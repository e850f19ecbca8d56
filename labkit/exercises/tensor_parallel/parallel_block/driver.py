"""What a rank runs of parallel_block."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import in_group, my_group
from labkit.checks.values import number, tensor, text
from labkit.exercises.tensor_parallel.on_ranks import numbers_held, through


def drive(functions: Functions, inputs: Values) -> Values:
    """Run one part of a block forward and backward, take a step of SGD, run it forward again.

    Inputs: part ("ParallelMLP" or "ParallelAttention"), num_heads, layers (weights and biases of the two layers), x,
    gradient (of the result), again (x after the step), lr, optional groups.
    """
    name = text(inputs, "part")
    first, second = layers_of(inputs)
    whole = [each.detach().clone() for layer in (first, second) for each in layer.parameters()]
    more: list[Any] = [inputs["num_heads"]] if name == "ParallelAttention" else []
    keywords = in_group(my_group(inputs))
    try:
        module = cast(nn.Module, functions[name](first, second, *more, **keywords))
    except ValueError as error:
        return {"raised": str(error)[:200]}
    found: dict[str, Value] = {"raised": "", "held": numbers_held(module)}
    found |= through(module, tensor(inputs, "x"), tensor(inputs, "gradient"))
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.sub_(number(inputs, "lr") * parameter.grad)
        found["again"] = module(tensor(inputs, "again")).detach().clone()
    now = [each.detach() for layer in (first, second) for each in layer.parameters()]
    found["layers_kept"] = all(map(torch.equal, whole, now))
    return found


def layers_of(inputs: Values) -> tuple[nn.Linear, nn.Linear]:
    """Return the two layers, with the weights and biases of the case."""
    tensors = cast("list[Tensor]", inputs["layers"])
    made = []
    for weight, bias in (tensors[:2], tensors[2:]):
        layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
        with torch.no_grad():
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
        made.append(layer)
    return made[0], made[1]
