"""What a rank runs of layer_time."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.exercises.planner.as_data import data_of
from labkit.exercises.planner.cases import job_in, plans_in


def drive(functions: Functions, inputs: Values) -> Values:
    """Time a layer by each plan; return it as data."""
    job = job_in(inputs)
    return {"layers": [data_of(functions["layer_seconds"](job, plan)) for plan in plans_in(inputs)]}
