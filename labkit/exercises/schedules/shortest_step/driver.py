"""What a rank runs of shortest_step."""

from __future__ import annotations

from typing import Any

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer


def drive(functions: Functions, inputs: Values) -> Values:
    """Return where chunks are and every stage's order of work (shortest_step)."""
    asked = (integer(inputs, name) for name in ("num_stages", "num_microbatches", "most_held"))
    return {"plan": _as_data(functions["shortest_step"](*asked))}


def _as_data(plan: Any) -> Value:
    if plan is None:
        return None
    if not isinstance(plan, tuple | list) or len(plan) != 2 or not isinstance(plan[1], tuple | list):
        return f"{plan!r:.60}"
    placement, orders = plan
    listed = [order if isinstance(order, tuple | list) else [order] for order in orders]
    return {"placement": str(placement), "orders": [[str(word) for word in order] for order in listed]}
