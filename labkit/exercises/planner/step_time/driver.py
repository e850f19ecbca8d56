"""What a rank runs of step_time."""

from __future__ import annotations

import time

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.exercises.planner.as_data import data_of
from labkit.exercises.planner.cases import job_in, plans_in

ENOUGH_S = 2.0
"""A planner asks about thousands of plans: an answer that plays each of them stops here."""


def drive(functions: Functions, inputs: Values) -> Values:
    """Time a step by each plan; return the seconds, and whether that was quick."""
    job, found, begin = job_in(inputs), [], time.process_time()
    for plan in plans_in(inputs):
        found.append(data_of(functions["step_seconds"](job, plan)))
        if time.process_time() - begin > ENOUGH_S:
            return {"seconds": found, "quick": False}
    return {"seconds": found, "quick": True}
