"""Hidden cases of bubble."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.pipeline.bubble.exercise import bubble_case


def cases(draw: random.Random) -> list[Case]:
    pairs = [(stages, draw.randint(1, 64)) for stages in (1, 2, 3, 5, 8, 16)]
    return [bubble_case("drawn pipelines", pairs, draw.uniform(0.01, 1.0), draw.uniform(1e-4, 1e-2))]
