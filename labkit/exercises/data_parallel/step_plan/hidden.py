"""Hidden cases of step_plan."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.data_parallel.hidden_drawing import arguments
from labkit.exercises.data_parallel.step_plan.exercise import plans_case


def cases(draw: random.Random) -> list[Case]:
    return [plans_case(f"{count} devices", [arguments(draw, count) for _ in range(2)]) for count in (1, 2, 3, 5, 8)]
