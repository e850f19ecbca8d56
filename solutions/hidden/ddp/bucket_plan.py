"""Hidden cases of bucket_plan."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.ddp.bucket_plan.exercise import plans_case


def cases(draw: random.Random) -> list[Case]:
    def calls(count: int, low: int, high: int) -> list[tuple[list[int], int]]:
        return [
            ([draw.randint(low, high) for _ in range(draw.randint(3, 20))], draw.randint(low, 3 * high))
            for _ in range(count)
        ]

    exact = draw.randint(5, 50)
    return [
        plans_case("drawn sizes", calls(6, 10, 100)),
        plans_case("caps smaller than some parameters", calls(4, 50, 500)),
        plans_case("exactly full, one, none", [([exact] * 7, 3 * exact), ([exact], 2 * exact), ([], exact)]),
    ]
