"""What the drivers of this lesson share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch.distributed as dist
from torch import Tensor

from labkit.checks.case import Value, Values


def in_group(inputs: Values) -> dict[str, Any]:
    """Return the keyword that names this rank's group, none for the default group; every rank calls this."""
    groups = cast("list[list[int]] | None", inputs.get("groups"))
    if groups is None:
        return {}
    made = [dist.new_group(ranks) for ranks in groups]
    return {"group": next(each for each, ranks in zip(made, groups, strict=True) if dist.get_rank() in ranks)}


def through(function: Callable[..., Tensor], x: Tensor, gradient: Tensor) -> dict[str, Value]:
    """Return what a function makes of x, x afterwards, and the gradient that reaches x; None for what there is not."""
    leaf = x.clone().requires_grad_()
    given = leaf * 1
    out = function(given)
    kept = given.detach().clone()
    if isinstance(out, Tensor) and out.requires_grad and out.shape == gradient.shape:
        out.backward(gradient.clone())  # type: ignore[no-untyped-call]
    return {"out": out.detach().clone() if isinstance(out, Tensor) else None, "kept": kept, "gradient": leaf.grad}
