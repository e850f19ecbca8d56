"""Hidden cases of average."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.start_here.average.exercise import mean_case


def cases(draw: random.Random) -> list[Case]:
    return [
        mean_case(draw.randrange(1 << 30), size, (draw.randint(2, 9), *more))
        for size, more in ((2, ()), (3, (2,)), (5, ()), (7, ()))
    ]
