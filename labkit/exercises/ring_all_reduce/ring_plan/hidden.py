"""Hidden cases of ring_plan."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.ring_all_reduce.ring_plan.exercise import plan_case as ring_plan_case


def cases(draw: random.Random) -> list[Case]:
    return [
        ring_plan_case("worlds of 2 to 5", [2, 3, 4, 5]),
        ring_plan_case("larger worlds", [7, 8, draw.randint(9, 17)]),
        ring_plan_case("one rank", [1, 6]),
    ]
