"""What a rank runs of deal_layers."""

from __future__ import annotations

from typing import Any

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer, listed


def drive(functions: Functions, inputs: Values) -> Values:
    """Deal out layers; return how many each stage got.

    Inputs: seconds (a list for each stage), num_layers, num_microbatches.
    """
    seconds = [list(row) for row in listed(inputs, "seconds")]
    dealt: Any = functions["deal_layers"](seconds, integer(inputs, "num_layers"), integer(inputs, "num_microbatches"))
    return {"layers": list(dealt) if isinstance(dealt, list | tuple) else f"{dealt!r:.60}"}
