"""What a rank runs of step_plan."""

from __future__ import annotations

from typing import Any

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import listed
from labkit.exercises.data_parallel.on_ranks import described


def drive(functions: Functions, inputs: Values) -> Values:
    """Call step_plan with each list of arguments; return each plan as lists [what, src, dst, num_bytes] (step_plan)."""
    calls = listed(inputs, "calls")
    return {"plans": [_plan_data(functions["step_plan"](list(sizes), *more)) for sizes, *more in calls]}


def _plan_data(plan: Any) -> Value:
    try:
        return [[described(getattr(m, name)) for name in ("what", "src", "dst", "num_bytes")] for m in plan]
    except (TypeError, AttributeError):
        return described(plan) if not isinstance(plan, list) else f"{plan!r:.80}"
