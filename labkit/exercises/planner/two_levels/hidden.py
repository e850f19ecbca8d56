"""Hidden cases of two_levels: drawn operators, with and without skips."""

from __future__ import annotations

import random
from math import isclose

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.planner.graph_plans import known, two_levels
from labkit.exercises.planner.graphs import Described
from labkit.exercises.planner.two_levels.exercise import graph_case
from labkit.plans.operator_graph import graph_of, step_seconds


def _drawn(draw: random.Random, count: int, num_gpus: int, num_microbatches: int, slip: str = "") -> Described:
    """Return a graph whose best plan is one that stages alike do not come near, nor the plan of a usual mistake."""
    while True:
        operators = tuple(
            (
                draw.choice([2.0, 4.0, 8.0]),
                draw.choice([8.0, 64.0, 512.0, 2048.0]),
                draw.choice([4.0, 16.0, 64.0, 256.0]),
            )
            for _ in range(count)
        )
        skips = tuple(at for at in range(2, count) if draw.random() < 0.5)
        described = operators, num_gpus, num_microbatches, skips
        naive, best = known(described)
        if naive > 1.1 * best and not (slip and isclose(_by(slip, described), best)):
            return described


def _by(slip: str, described: Described) -> float:
    operators, num_gpus, num_microbatches, skips = described
    graph = graph_of(operators, num_gpus, num_microbatches, skips=skips)
    return step_seconds(graph, two_levels(graph, how=slip))


def cases(draw: random.Random) -> list[Case]:
    return for_half_and_all(
        [
            graph_case("7 drawn operators on 8 GPUs", _drawn(draw, 7, 8, draw.choice([3, 4]), "one less")),
            graph_case("6 drawn operators, many microbatches", _drawn(draw, 6, 8, 32)),
        ]
    )
