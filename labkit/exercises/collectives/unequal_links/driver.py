"""What a rank runs of unequal_links."""

from __future__ import annotations

from typing import Any

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import listed
from labkit.exercises.sums_over_ranks.plan_data import plan_data

_MOST = 20_000
"""Records of a plan that are looked at."""


def drive(functions: Functions, inputs: Values) -> Values:
    """Call all_reduce_plans for one cluster; return the plans as plain data, or in words what came instead."""
    slow = listed(inputs, "slow_links")
    plans: Any = functions["all_reduce_plans"](
        inputs["num_ranks"], inputs["ranks_per_node"], {(int(src), int(dst)): factor for src, dst, factor in slow}
    )
    return {"plans": _plans(plans)}


def _plans(plans: Any) -> Value:
    if not isinstance(plans, list | tuple):
        return f"a {type(plans).__name__}" if plans is not None else "nothing (None)"
    found = [plan_data(plan) for plan in plans]
    return [plan[:_MOST] if isinstance(plan, list) else plan for plan in found]
