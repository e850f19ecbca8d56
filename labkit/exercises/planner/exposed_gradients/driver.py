"""What a rank runs of exposed_gradients."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import listed
from labkit.exercises.planner.as_data import data_of


def drive(functions: Functions, inputs: Values) -> Values:
    """Say what buckets leave exposed; return it as data.

    Inputs: buckets (pairs of lists).
    """
    exposed = functions["exposed_seconds"]
    return {"buckets": [data_of(exposed(list(ready), list(takes))) for ready, takes in listed(inputs, "buckets")]}
