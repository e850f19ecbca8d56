"""What the drivers of this lesson share."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from labkit.checks.case import Value


def through(function: Callable[..., Tensor], x: Tensor, gradient: Tensor) -> dict[str, Value]:
    """Return what a function makes of x, x afterwards, and the gradient that reaches x; None for what there is not."""
    leaf = x.clone().requires_grad_()
    given = leaf * 1
    out = function(given)
    kept = given.detach().clone()
    if isinstance(out, Tensor) and out.requires_grad and out.shape == gradient.shape:
        out.backward(gradient.clone())  # type: ignore[no-untyped-call]
    return {"out": out.detach().clone() if isinstance(out, Tensor) else None, "kept": kept, "gradient": leaf.grad}
