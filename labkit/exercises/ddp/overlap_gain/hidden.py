"""Hidden cases of overlap_gain."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.ddp.overlap_gain.exercise import World, cost_case


def cases(draw: random.Random) -> list[Case]:
    worlds: list[World] = [
        (draw.uniform(1e-3, 5e-2), draw.uniform(1e6, 1e9), draw.choice([2, 3, 8, 64]), draw.uniform(1e-6, 1e-4), rate)
        for rate in (1e9, 5e9, 2e10, 1e11)
    ]
    alone: World = (draw.choice([0.25, 0.5]), 1e6, 1, 1e-5, 1e9)
    return [
        cost_case("one rank: nothing travels", [alone], [1, 2]),
        cost_case("drawn worlds", worlds, [1, 2, draw.randint(3, 40)], most=draw.randint(20, 80)),
    ]
