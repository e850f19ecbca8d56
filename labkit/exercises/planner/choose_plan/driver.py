"""What a rank runs of choose_plan."""

from __future__ import annotations

import sys
from typing import Any, Never

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.planner.cases import job_in

PLAYS = "plays plans"
RUNS = ("labkit.worlds", "labkit.planned_jobs")
"""Modules in which `run` is what plays a plan; a rank of a hidden case has only the first."""


class PlaysError(Exception):
    """The planner asked the cluster what it was to foretell."""


def _refuses(*args: Any, **how: Any) -> Never:
    raise PlaysError


def drive(functions: Functions, inputs: Values) -> Values:
    """Call choose_plan with a job; return the plan as data."""
    found = {module: vars(module)["run"] for module in filter(None, map(sys.modules.get, RUNS))}
    for module in found:
        vars(module)["run"] = _refuses
    try:
        plan: Any = functions["choose_plan"](job_in(inputs))
    except PlaysError:
        return {"plan": PLAYS}
    finally:
        for module, run in found.items():
            vars(module)["run"] = run
    try:
        data: Value = [plan.data, plan.pipeline, plan.tensor, plan.microbatch, plan.recompute]
    except AttributeError:
        data = f"{plan!r:.80}"
    return {"plan": data}
