"""What the drivers of this lesson share."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.groups import one_group
from labkit.checks.values import tensor


def view_of(base: Tensor, layout: str) -> Tensor:
    """Return the view of `base` that the learner's function is given."""
    if layout == "plain":
        return base
    if layout == "transposed":
        return base.t()
    if layout == "every other":
        return base[::2]
    if layout == "column":
        return base[:, 1]
    if layout == "inner rows":
        return base[1:-1]
    raise ValueError(f"no layout {layout!r}")


def all_reduce_in_place(functions: Functions, inputs: Values) -> Values:
    """Call an in-place all-reduce on a view of this rank's tensor; return the whole tensor.

    Inputs: tensor, layout; optional group (global ranks; others do not call), args (further positional arguments),
    before (another tensor, for which it is called first), catch (the ValueError that is asked for is brought back
    instead of raised).
    """
    (function,) = functions.values()
    base = tensor(inputs, "tensor").clone()
    view = view_of(base, cast(str, inputs.get("layout", "plain")))
    group, member = one_group(inputs)
    if not member:
        return {"base": base, "returned": "None", "raised": ""}
    keywords = {} if group is None else {"group": group}
    arguments = cast(list[Any], inputs.get("args", []))
    if "before" in inputs:
        function(tensor(inputs, "before").clone(), *arguments, **keywords)
    if not inputs.get("catch"):
        returned = function(view, *arguments, **keywords)
        return {"base": base, "returned": type(returned).__name__, "raised": ""}
    try:
        returned = function(view, *arguments, **keywords)
    except ValueError as error:
        return {"base": base, "returned": "None", "raised": f"{type(error).__name__}: {error}"[:400]}
    return {"base": base, "returned": type(returned).__name__, "raised": ""}
