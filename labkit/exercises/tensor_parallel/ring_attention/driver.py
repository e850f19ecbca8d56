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
        places = functions["balanced_places"](inputs["num_tokens"])
        narrow = isinstance(places, Tensor) and places.dtype in (torch.int16, torch.int32)
        return {"places": places.long() if narrow else places}
    given = [cast(Tensor, inputs[name]).clone() for name in ("q", "k", "v", "places")]
    with torch.no_grad():
        out = functions["ring_attention"](*given)
    return {"out": out}
