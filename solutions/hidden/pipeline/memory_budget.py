"""Hidden cases of memory_budget."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.pipeline.memory_budget.exercise import budget_case

# ---- the cases


def cases(draw: random.Random) -> list[Case]:
    models = [
        (draw.randint(10**6, 10**11), size, draw.randint(0, 10**12), draw.randint(10**10, 10**11))
        for size in (1, 2, 4, 8)
    ]
    device = draw.randint(10**9, 10**10)
    exact = (16 * device // 64, 4, 16 * device - 16 * (16 * device // 64), 4 * device)
    return [budget_case("drawn models", models), budget_case("what fits exactly", [exact])]
