"""What a rank runs of lay_out."""

from __future__ import annotations

from typing import Any, cast

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.plans.hybrid_step import Job


def drive(functions: Functions, inputs: Values) -> Values:
    """Call lay_out with a job; return the plan as data."""
    plan: Any = functions["lay_out"](Job(**cast(dict[str, Any], inputs["job"])))
    try:
        data: Value = {
            "sizes": [[axis, size] for axis, size in plan.sizes],
            "microbatch": plan.microbatch, "layers": list(plan.layers), "recompute": list(plan.recompute),
        }  # fmt: skip
    except (AttributeError, TypeError, ValueError):
        data = f"{plan!r:.80}"
    return {"plan": data}
