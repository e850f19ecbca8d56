"""What a rank runs of layer_time."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import listed
from labkit.exercises.planner.as_data import data_of
from labkit.exercises.planner.cases import job_in, plans_in


def drive(functions: Functions, inputs: Values) -> Values:
    """Time products and layers; return both as data.

    Inputs: job, plans, products (rows, inner, columns).
    """
    job = job_in(inputs)
    products = [data_of(functions["product_seconds"](job, *sizes)) for sizes in listed(inputs, "products")]
    return {"products": products, "layers": [data_of(functions["layer_seconds"](job, p)) for p in plans_in(inputs)]}
