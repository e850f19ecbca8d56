"""Hidden cases of stage_memory."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.planner.cases import plans_case
from labkit.plans.planned_step import Plan, job_of


def cases(draw: random.Random) -> list[Case]:
    width = draw.choice([1024, 3072, 4096])
    many, few = job_of(width, 24, 32, 96), job_of(width, 24, 32, 8, vocabulary=draw.choice([32_768, 131_072]))
    return [
        plans_case("a drawn width", many, [Plan(4, 8, 1, draw.choice([1, 2])), Plan(2, 2, 8, 4)]),
        plans_case("a drawn width, again", many, [Plan(2, 4, 4, draw.choice([1, 2]), True), Plan(8, 1, 4, 2, True)]),
        plans_case("few microbatches", few, [Plan(4, 8, 1, draw.choice([1, 2])), Plan(1, 8, 4, 4, True)]),
    ]
