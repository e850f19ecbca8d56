"""What a rank runs of clipped_shards."""

from __future__ import annotations

from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import my_group
from labkit.checks.values import tensors


def drive(functions: Functions, inputs: Values) -> Values:
    """Clip this rank's gradients by the norm of its group's (clipped_shards).

    Inputs: gradients (may be none), max_norm, groups (lists of ranks; None for all ranks together).
    """
    group, gradients = my_group(inputs), tensors(inputs, "gradients")
    norm = functions["clip_by_global_norm"](gradients, inputs["max_norm"], group)
    return {
        "norm": float(norm) if isinstance(norm, (Tensor, float, int)) else norm,
        "gradients": gradients,
    }
