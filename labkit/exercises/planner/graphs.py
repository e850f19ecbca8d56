"""Operator graphs as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from labkit.checks.case import Value, Values
from labkit.plans.operator_graph import Graph, graph_of

Described = tuple[tuple[tuple[float, float, float], ...], int, int, tuple[int, ...]]
"""What graph_of is given: operators, GPUs, microbatches and skips."""


def as_data(described: Described) -> dict[str, Value]:
    """Return a described graph as a case holds it."""
    operators, num_gpus, num_microbatches, skips = described
    return {
        "operators": [list(each) for each in operators], "num_gpus": num_gpus, "num_microbatches": num_microbatches,
        "skips": list(skips),
    }  # fmt: skip


def graph_in(inputs: Values) -> Graph:
    """Return the graph of a case."""
    said = cast(dict[str, Any], inputs)
    operators = [(work, weights, out) for work, weights, out in said["operators"]]
    return graph_of(operators, said["num_gpus"], said["num_microbatches"], skips=said["skips"])


def described_in(inputs: Values) -> Described:
    """Return the described graph of a case, which can be looked up."""
    said = cast(dict[str, Any], inputs)
    operators: Sequence[Sequence[float]] = said["operators"]
    found = tuple((work, weights, out) for work, weights, out in operators)
    return found, said["num_gpus"], said["num_microbatches"], tuple(said["skips"])
