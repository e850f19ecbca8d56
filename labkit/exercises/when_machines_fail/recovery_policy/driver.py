"""What a rank runs of recovery_policy."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, cast

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.failures.recovery import Job, Recovery


def drive(functions: Functions, inputs: Values) -> Values:
    """Call plan_recovery with a job; return the plan as data."""
    plan: Any = functions["plan_recovery"](Job(**cast(dict[str, Any], inputs["job"])))
    data: Value = f"{plan!r:.80}"
    if isinstance(plan, Recovery) and all(
        isinstance(getattr(plan, each.name), bool | int | float | str) for each in fields(plan)
    ):
        data = asdict(plan)
    return {"plan": data}
