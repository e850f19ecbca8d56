"""Hidden cases of ring_cost."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.collectives.ring_cost.exercise import seconds_case


def cases(draw: random.Random) -> list[Case]:
    worlds = [
        (draw.randint(10**3, 10**9), world_size, draw.uniform(1e-6, 1e-3), draw.uniform(1e8, 1e11))
        for world_size in (2, 3, 4, 5, 7, 8, draw.randint(9, 1000))
    ]
    return [seconds_case("drawn sizes, 2 to 1000 ranks", worlds, draw.uniform(1e-3, 1.0))]
