"""What a rank runs of ring_attention."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions


def drive(functions: Functions, inputs: Values) -> Values:
    """Return which tokens this rank would hold, or its queries' attention.

    Inputs: num_tokens, or q, k, v and places.
    """
    if "num_tokens" in inputs:
        return {"places": functions["balanced_places"](inputs["num_tokens"])}
    given = [cast(Tensor, inputs[name]).clone() for name in ("q", "k", "v", "places")]
    with torch.no_grad():
        out = functions["ring_attention"](*given)
    return {"out": out}
