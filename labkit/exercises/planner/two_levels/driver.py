"""What a rank runs of two_levels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.exercises.planner.graphs import graph_in

TRIES_ALL = "tries every way"
MOST_LOOKS = 300_000
"""The lesson's answer looks at twelve operators' seconds 18 thousand times; every way of every stage is 53 million."""


class TooManyLooksError(Exception):
    """The tables were asked more often than two levels need to."""


class _Counted(list[Any]):
    looks = 0

    def __getitem__(self, place: Any) -> Any:
        self.looks += 1
        if self.looks > MOST_LOOKS:
            raise TooManyLooksError
        return super().__getitem__(place)


def drive(functions: Functions, inputs: Values) -> Values:
    """Plan a graph; return GPUs and ways of each stage as data.

    Inputs: what graph_of is given.
    """
    graph = graph_in(inputs)
    try:
        plan: Any = functions["two_levels"](replace(graph, seconds=_Counted(graph.seconds)))
    except TooManyLooksError:
        return {"plan": TRIES_ALL}
    try:
        data: Value = [[stage.gpus, list(stage.ways)] for stage in plan]
    except (AttributeError, TypeError):
        data = f"{plan!r:.80}"
    return {"plan": data}
