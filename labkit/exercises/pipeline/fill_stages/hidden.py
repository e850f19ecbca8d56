"""Hidden cases of fill_stages."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.pipeline.fill_stages.exercise import stages_case


def cases(draw: random.Random) -> list[Case]:
    worlds = [
        stages_case(num_stages, draw.randint(num_stages + 2, 3 * num_stages), draw.randint(2, num_stages + 2))
        for num_stages in (2, 3, 4, draw.randint(5, 8))
    ]
    return for_half_and_all(worlds)
