"""What a rank runs of any_tensor."""

from __future__ import annotations

from typing import Any, cast

import torch.distributed as dist

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integers, tensor, text
from labkit.exercises.sums_over_ranks.on_ranks import view_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Call an all-reduce on every rank that takes part; return the whole tensor.

    Inputs: tensor, layout, op ("SUM", ...; absent: the default), group (global ranks; absent: all of them), before
    (another tensor, for which it is called first).
    """
    base = tensor(inputs, "tensor").clone()
    ranks = integers(inputs, "group") if "group" in inputs else list(range(dist.get_world_size()))
    if dist.get_rank() not in ranks:
        return {"base": base}
    keywords: dict[str, Any] = {"op": getattr(dist.ReduceOp, text(inputs, "op"))} if "op" in inputs else {}
    if "before" in inputs:
        functions["all_reduce_over"](tensor(inputs, "before").clone(), [*ranks], **keywords)
    functions["all_reduce_over"](view_of(base, cast(str, inputs.get("layout", "plain"))), [*ranks], **keywords)
    return {"base": base}
