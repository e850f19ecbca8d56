"""What a rank runs of ring_attention."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions


def drive(functions: Functions, inputs: Values) -> Values:
    """Return which tokens this rank would hold, or its queries' attention and whether what was given is as before.

    Inputs: num_tokens, or q, k, v and places.
    """
    if "num_tokens" in inputs:
        places = functions["balanced_places"](inputs["num_tokens"])
        narrow = isinstance(places, Tensor) and places.dtype in (torch.int16, torch.int32)
        return {"places": places.long() if narrow else places}
    before = [cast(Tensor, inputs[name]) for name in ("q", "k", "v", "places")]
    given = [each.clone() for each in before]
    with torch.no_grad():
        out = functions["ring_attention"](*given)
    return {"out": out, "kept": all(map(torch.equal, before, given))}
