"""What a rank runs of quantised_all_reduce."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import one_group
from labkit.checks.values import tensor, text
from labkit.exercises.gradient_compression.on_ranks import laid_out


def drive(functions: Functions, inputs: Values) -> Values:
    """Average this rank's tensor with those of others (quantised_all_reduce).

    Inputs: tensor, layout; optional group.
    """
    group, member = one_group(inputs)
    if not member:
        return {"member": False}
    given = laid_out(tensor(inputs, "tensor"), text(inputs, "layout"))
    mean = functions["quantised_all_reduce"](given, *([group] if group else []))
    changed = not torch.equal(given, tensor(inputs, "tensor"))
    return {"mean": mean.clone() if isinstance(mean, Tensor) else f"{mean!r:.60}", "changed": changed}
