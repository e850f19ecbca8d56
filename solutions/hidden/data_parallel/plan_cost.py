"""Hidden cases of plan_cost."""

from __future__ import annotations

import random

from hidden.data_parallel.drawing import arguments

from labkit.checks.case import Case
from labkit.exercises.data_parallel.moves import Move, right_plan
from labkit.exercises.data_parallel.plan_cost.exercise import Link, costs_case


def cases(draw: random.Random) -> list[Case]:
    links: list[Link] = [(draw.uniform(1e-6, 1e-4), 10.0 ** draw.uniform(8, 11)) for _ in range(3)]
    between: list[Move] = [["model", *draw.sample(range(6), 2), draw.randint(0, 10**6)] for _ in range(9)]
    return [
        costs_case("steps of data parallelism", [(right_plan(*arguments(draw, n)), n) for n in (2, 4, 7)], links),
        costs_case("moves between any devices", [(between, 6)], links),
    ]
