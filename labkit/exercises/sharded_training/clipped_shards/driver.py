"""What a rank runs of clipped_shards."""

from __future__ import annotations

from typing import cast

import torch.distributed as dist
from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import tensors


def drive(functions: Functions, inputs: Values) -> Values:
    """Clip this rank's gradients by the norm of its group's (clipped_shards).

    Inputs: gradients (may be none), max_norm, groups (lists of ranks; None for all ranks together).
    """
    groups = cast("list[list[int]] | None", inputs["groups"])
    group = None
    for ranks in groups or ():
        made = dist.new_group(ranks)
        group = made if dist.get_rank() in ranks else group
    gradients = tensors(inputs, "gradients")
    norm = functions["clip_by_global_norm"](gradients, inputs["max_norm"], group)
    return {
        "norm": float(norm) if isinstance(norm, (Tensor, float, int)) else norm,
        "gradients": gradients,
    }
