"""What a rank runs of offload_plan."""

from __future__ import annotations

from typing import Any, cast

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.plans.offloaded_step import Host
from labkit.plans.sharded_step import Job


def drive(functions: Functions, inputs: Values) -> Values:
    """Call offload_plan with a job and a host; return the plan as data (offload_plan)."""
    job, host = Job.of(cast(dict[str, Any], inputs["job"])), Host(**cast(dict[str, Any], inputs["host"]))
    plan: Any = functions["offload_plan"](job, host)
    try:
        data: Value = {
            "microbatch": plan.step.microbatch,
            "keep": list(plan.step.keep),
            "save": list(plan.step.save),
            "host": list(plan.host),
        }
    except (AttributeError, TypeError):
        data = f"{plan!r:.80}"
    return {"plan": data}
