"""What a rank runs of choose_plan."""

from __future__ import annotations

from typing import Any

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.planner.cases import job_in


def drive(functions: Functions, inputs: Values) -> Values:
    """Call choose_plan with a job; return the plan as data."""
    plan: Any = functions["choose_plan"](job_in(inputs))
    try:
        data: Value = [plan.data, plan.pipeline, plan.tensor, plan.microbatch, plan.recompute]
    except AttributeError:
        data = f"{plan!r:.80}"
    return {"plan": data}
