"""Hidden cases of memory_plan."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.sharded_training.memory_plan.exercise import plan_case


def cases(draw: random.Random) -> list[Case]:
    return for_half_and_all([
        plan_case("7.7 B, another memory", memory_gb=draw.choice([25, 26, 28]), link_gb_s=draw.choice([12, 13])),
        plan_case("9.7 B on sixteen devices", (6, 6, 12, 6, 6), num_ranks=16, link_gb_s=draw.choice([11, 12])),
        plan_case(
            "7 levels", (3, 3, 3, 6, 3, 3, 3), channels=1024, positions=16384, link_gb_s=draw.choice([11, 12, 13])
        ),
    ])  # fmt: skip
