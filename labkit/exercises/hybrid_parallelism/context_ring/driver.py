"""What a rank runs of context_ring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import my_group
from labkit.checks.values import tensor

FORWARD, GRADIENTS = ("out", "logsumexp"), ("of_q", "of_k", "of_v")


def drive(functions: Functions, inputs: Values) -> Values:
    """Return what forward gave, and the gradients of this rank's q, k and v; None for each that did not come.

    Backward is given what forward returned, and is not called where that has another shape.

    Inputs: groups, or none; gradient (of out), q, k, v and places of this rank's tokens.
    """
    group = my_group(inputs)

    def given(*names: str) -> list[Tensor]:
        return [tensor(inputs, name).clone() for name in names]

    with torch.no_grad():
        found = _named(FORWARD, functions["ring_forward"](*given("q", "k", "v", "places"), group))
        shape = tensor(inputs, "q").shape
        if not all(isinstance(each, Tensor) for each in found.values()):
            return {**found, **_named(GRADIENTS, [])}
        if (found["out"].shape, found["logsumexp"].shape) != (shape, (*shape[:-1], 1)):
            return {**found, **_named(GRADIENTS, [])}
        saved = [found[name].clone() for name in FORWARD]
        came = functions["ring_backward"](*given("gradient", "q", "k", "v", "places"), *saved, group)
        return {**found, **_named(GRADIENTS, came)}


def _named(names: Sequence[str], came: Any) -> dict[str, Any]:
    found = list(came) if isinstance(came, list | tuple) else [came]
    return dict(zip(names, [*found, *[None] * len(names)], strict=False))
