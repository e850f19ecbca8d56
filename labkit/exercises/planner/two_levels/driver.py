"""What a rank runs of two_levels."""

from __future__ import annotations

from typing import Any

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.planner.graphs import graph_in


def drive(functions: Functions, inputs: Values) -> Values:
    """Plan a graph; return GPUs and ways of each stage as data.

    Inputs: what graph_of is given.
    """
    plan: Any = functions["two_levels"](graph_in(inputs))
    try:
        data: Value = [[stage.gpus, list(stage.ways)] for stage in plan]
    except (AttributeError, TypeError):
        data = f"{plan!r:.80}"
    return {"plan": data}
