"""What a rank runs of memory_plan."""

from __future__ import annotations

from typing import Any, cast

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.plans.sharded_step import Job


def drive(functions: Functions, inputs: Values) -> Values:
    """Call memory_plan with a job; return the plan as data (memory_plan)."""
    plan: Any = functions["memory_plan"](Job.of(cast(dict[str, Any], inputs["job"])))
    try:
        data: Value = {"microbatch": plan.microbatch, "keep": list(plan.keep), "save": list(plan.save)}
    except (AttributeError, TypeError):
        data = f"{plan!r:.80}"
    return {"plan": data}
