"""Hidden cases of shortest_step."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.schedules.shortest_step.exercise import step_case


def cases(draw: random.Random) -> list[Case]:
    worlds = [
        step_case(num_stages, draw.randint(2 * num_stages, 3 * num_stages), num_stages + draw.randint(0, 3))
        for num_stages in (3, 4, 5, draw.randint(6, 8))
    ]
    return for_half_and_all(worlds)
