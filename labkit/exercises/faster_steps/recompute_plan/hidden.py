"""Hidden cases of recompute_plan."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.faster_steps.recompute_plan.exercise import GPT_BLOCK, plan_case


def cases(draw: random.Random) -> list[Case]:
    return for_half_and_all([
        plan_case("blocks of the GPT", GPT_BLOCK, draw.randint(3, 5), draw.uniform(0.1, 0.7)),
        *(
            plan_case("drawn blocks", [(draw.randint(20, 900), draw.randint(50, 2000)) for _ in range(size)], 4, room)
            for size, room in ((3, 0.4), (5, 0.2), (6, 0.6))
        ),
    ])  # fmt: skip
