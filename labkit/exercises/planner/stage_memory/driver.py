"""What a rank runs of stage_memory."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.exercises.planner.as_data import data_of
from labkit.exercises.planner.cases import job_in, plans_in


def drive(functions: Functions, inputs: Values) -> Values:
    """Count what stages hold by each plan; return it as data."""
    job = job_in(inputs)
    return {"stages": [data_of(functions["stage_bytes"](job, plan)) for plan in plans_in(inputs)]}
