"""What a rank runs of posted_training."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions


def drive(functions: Functions, inputs: Values) -> Values:
    """Call posted_training on every rank (posted_training)."""
    weight, gradients = cast(Tensor, inputs["weight"]), cast(list[Tensor], inputs["gradients"])
    before = weight.clone()
    sent = [gradient.clone() for gradient in gradients]
    found = functions["posted_training"](weight, sent, inputs["num_gradients"], inputs["lr"])
    kept = torch.equal(weight, before)
    return {"weight": found if isinstance(found, Tensor) else f"{type(found).__name__}", "kept": kept}
