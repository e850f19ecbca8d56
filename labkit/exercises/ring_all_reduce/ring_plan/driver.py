"""What a rank runs of ring_plan."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integers
from labkit.exercises.sums_over_ranks.plan_data import plan_data


def drive(functions: Functions, inputs: Values) -> Values:
    """Call ring_plan for each rank of each world size; return the plans as plain data (ring_plan)."""
    sizes = integers(inputs, "world_sizes")
    plan_of = functions["ring_plan"]
    return {"plans": [[plan_data(plan_of(rank, size)) for rank in range(size)] for size in sizes]}
