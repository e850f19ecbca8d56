"""Hidden cases of prefetching_loader."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.faster_steps.prefetching_loader.exercise import loader_case


def cases(draw: random.Random) -> list[Case]:
    return [
        loader_case("drawn numbers", draw.randint(20, 60), draw.randint(2, 5), draw.randint(5, 12)),
        loader_case("one may wait", draw.randint(8, 20), 1, draw.randint(1, 5), opposite=seed(draw)),
        loader_case("many may wait, from a reader", 40, 12, 30, reader=True),
    ]
