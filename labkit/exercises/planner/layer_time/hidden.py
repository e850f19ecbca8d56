"""Hidden cases of layer_time."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.planner.cases import plans_case
from labkit.plans.planned_step import Plan, job_of


def cases(draw: random.Random) -> list[Case]:
    width = draw.choice([1024, 1536, 3072])
    narrow, wide = job_of(width, 12, 16, 64, num_tokens=draw.choice([1024, 4096])), job_of(6144, 40, 32, 64)
    return [
        plans_case("a drawn width", narrow,
                   [Plan(16, 1, 1, draw.choice([1, 2, 4])), Plan(2, 1, 8, draw.choice([1, 2]))]),
        plans_case("a drawn width, again", narrow,
                   [Plan(4, 2, 2, draw.choice([1, 2]), True), Plan(1, 2, 8, 1, True)]),
        plans_case("a wide one", wide, [Plan(2, 4, 4, draw.choice([1, 2, 4]), draw.random() < 0.5), Plan(4, 8, 1)]),
    ]  # fmt: skip
