"""What a rank runs of drop_in_all_reduce."""

from __future__ import annotations

from typing import Any, cast

import torch.distributed as dist

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import one_group
from labkit.checks.values import tensor, text
from labkit.exercises.sums_over_ranks.on_ranks import view_of
from labkit.torch_port.tensors import version_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Call a drop-in for dist.all_reduce on every rank, in the group or not; return the whole tensor.

    Beside it: what came back, whether it has a wait(), what that returned, whether the tensor was written to at all.

    Inputs: tensor, layout, op ("SUM", ...; absent: the default), group, async (whether to ask for a work object),
    before (another tensor, for which it is called first; its handle is waited for when both calls are made).
    """
    base = tensor(inputs, "tensor").clone()
    view = view_of(base, cast(str, inputs.get("layout", "plain")))
    group, _ = one_group(inputs)
    keywords: dict[str, Any] = {} if group is None else {"group": group}
    if "op" in inputs:
        keywords["op"] = getattr(dist.ReduceOp, text(inputs, "op"))
    if inputs.get("async"):
        keywords["async_op"] = True
    first: Any = None
    if "before" in inputs:
        first = functions["ring_all_reduce"](tensor(inputs, "before").clone(), **keywords)
    version = version_of(base)
    returned = functions["ring_all_reduce"](view, **keywords)
    if inputs.get("async") and hasattr(first, "wait"):
        first.wait()
    can_wait = callable(getattr(returned, "wait", None))
    waited = returned.wait() if inputs.get("async") and can_wait else True
    written = version_of(base) != version
    returned_name, waited_name = type(returned).__name__, repr(waited)
    return {"base": base, "returned": returned_name, "can_wait": can_wait, "waited": waited_name, "written": written}
