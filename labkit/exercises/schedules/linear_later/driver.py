"""What a rank runs of linear_later."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import texts


def drive(functions: Functions, inputs: Values) -> Values:
    """Call linear_later and go backward, twice; then call what it put off.

    Inputs: x, weight, bias (may be None), gradient, frozen (names that need no gradient, perhaps x).
    """
    frozen = texts(inputs, "frozen")
    leaves = {
        name: tensor.clone().requires_grad_(name not in frozen)
        for name in ("x", "weight", "bias")
        if isinstance(tensor := inputs[name], Tensor)
    }
    later: list[Callable[[], None]] = []
    found: dict[str, Value] = {}
    in_forward, num_products = 0, list[int]()
    for _ in range(2):  # gradients add up
        before = len(later)
        out = functions["linear_later"](leaves["x"], leaves["weight"], leaves.get("bias"), later)
        if not isinstance(out, Tensor):
            return {"problem": f"linear_later returned a {type(out).__name__}, not a tensor."}
        in_forward += len(later) - before
        with FlopCounterMode(display=False) as counted:
            torch.autograd.backward(out, cast(Tensor, inputs["gradient"]))
        num_products.append(counted.get_total_flops() // (2 * out.numel() * leaves["x"].shape[-1]))
        found = {"out": out.detach()}
    found["at_once"] = [name for name in ("weight", "bias") if name in leaves and leaves[name].grad is not None]
    found["x_later"] = "x" not in frozen and leaves["x"].grad is None
    found["put_off"], found["in_forward"], found["num_products"] = len(later), in_forward, max(num_products)
    x_before = None if leaves["x"].grad is None else leaves["x"].grad.clone()
    for rest in later:
        rest()
    x_after = leaves["x"].grad
    found["x_again"] = x_before is not None and x_after is not None and not torch.equal(x_before, x_after)
    return found | {f"gradient of {name}": leaf.grad for name, leaf in leaves.items()}
