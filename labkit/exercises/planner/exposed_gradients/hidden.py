"""Hidden cases of exposed_gradients."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.planner.exposed_gradients.exercise import Buckets, buckets_case


def _buckets(draw: random.Random, least: int, most: int) -> Buckets:
    count = draw.randint(least, most)
    return [draw.choice([0.5, 1.0, 2.0]) for _ in range(count)], [draw.choice([0.25, 1.5, 3.0]) for _ in range(count)]


def cases(draw: random.Random) -> list[Case]:
    return [
        buckets_case("drawn buckets", *(_buckets(draw, 3, 6) for _ in range(4))),
        buckets_case("many", _buckets(draw, 20, 30)),
        buckets_case("a backlog that a long layer hides", ([1.0, 1.0, draw.choice([6.0, 8.0])], [4.0, 1.0, 0.5])),
    ]
