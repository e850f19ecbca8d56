"""Hidden cases of exposed_gradients."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.planner.exposed_gradients.exercise import Buckets, gradients_case
from labkit.plans.planned_step import Plan, job_of


def _buckets(draw: random.Random) -> Buckets:
    count = draw.randint(3, 6)
    return [draw.choice([0.5, 1.0, 2.0]) for _ in range(count)], [draw.choice([0.25, 1.5, 3.0]) for _ in range(count)]


def cases(draw: random.Random) -> list[Case]:
    job = job_of(draw.choice([1024, 3072, 5120]), 24, 32, 96, vocabulary=draw.choice([32_768, 131_072]))
    return [
        gradients_case("drawn buckets", job, [Plan(32, 1, 1, 3), Plan(8, 1, 4)], [_buckets(draw) for _ in range(4)]),
        gradients_case("stages", job, [Plan(8, 4, 1), Plan(2, 4, 4, 2, True)], [_buckets(draw)]),
        gradients_case("one replica, too", job, [Plan(1, 8, 4), Plan(4, 1, 8)], [_buckets(draw)]),
    ]
