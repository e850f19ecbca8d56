"""What a rank runs of compression_plan."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer, listed


def drive(functions: Functions, inputs: Values) -> Values:
    """Return which entries travel in each step, as data (compression_plan)."""
    sizes, steps, budget = [*listed(inputs, "sizes")], integer(inputs, "num_steps"), integer(inputs, "budget_bytes")
    plan = functions["compression_plan"](sizes, steps, budget)
    if isinstance(plan, list | tuple):
        plan = [
            [[*each] if isinstance(each, tuple) else each for each in step] if isinstance(step, list | tuple) else step
            for step in plan
        ]
    return {"plan": plan}
