"""What a rank runs of exposed_gradients."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import listed
from labkit.exercises.planner.cases import job_in, plans_in
from labkit.exercises.planner.looks import data_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Say what buckets and gradients leave exposed; return it as data.

    Inputs: job, plans, buckets (pairs of lists), backwards (of a layer and of the head, for each plan).
    """
    job, exposed, rest = job_in(inputs), functions["exposed_seconds"], functions["gradient_seconds"]
    pairs = zip(plans_in(inputs), listed(inputs, "backwards"), strict=True)
    return {
        "buckets": [data_of(exposed(list(ready), list(takes))) for ready, takes in listed(inputs, "buckets")],
        "gradients": [data_of(rest(job, plan, *backwards)) for plan, backwards in pairs],
    }
