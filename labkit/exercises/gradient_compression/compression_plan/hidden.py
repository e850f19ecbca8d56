"""Hidden cases of compression_plan."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.checks.hidden import seed
from labkit.exercises.gradient_compression.compression_plan.exercise import plan_case


def cases(draw: random.Random) -> list[Case]:
    hidden = draw.choice([40, 56, 72])
    shapes = [(draw.randint(10, 24), hidden), (hidden, 48), (48, draw.randint(3, 9))]
    return for_half_and_all([
        plan_case("drawn layers", shapes, 60, draw.uniform(0.025, 0.04), seed(draw)),
        plan_case("four layers", [(16, 48), (48, 48), (48, 32), (32, 4)], 50, 0.04, seed(draw)),
    ])  # fmt: skip
