"""What a rank runs of bucket_plan."""

from __future__ import annotations

from typing import Any, cast

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions


def drive(functions: Functions, inputs: Values) -> Values:
    """Call bucket_plan with each list of sizes and cap (bucket_plan)."""
    calls = cast(list[dict[str, Any]], inputs["calls"])
    return {"plans": [_plan_data(functions["bucket_plan"](list(c["sizes"]), c["cap"])) for c in calls]}


def _plan_data(plan: Any) -> Value:
    try:
        return [[index if type(index) is int else f"{index!r:.40}" for index in bucket] for bucket in plan]
    except TypeError:
        return f"{plan!r:.60}"
