"""What a rank runs of recompute_plan."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer, listed


def drive(functions: Functions, inputs: Values) -> Values:
    """Return which tensors of the chain are kept (recompute_plan)."""
    sizes, times = ([*listed(inputs, name)] for name in ("sizes_mb", "times_us"))
    return {"kept": functions["recompute_plan"](sizes, times, integer(inputs, "limit_mb"))}
