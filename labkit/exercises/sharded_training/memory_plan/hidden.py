"""Hidden cases of memory_plan."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.sharded_training.memory_plan.exercise import plan_case


def cases(draw: random.Random) -> list[Case]:
    return for_half_and_all([
        plan_case("7 B, another memory", memory_gb=draw.choice([22, 26, 32])),
        plan_case("13 B on sixteen devices", width=5120, num_layers=40, num_ranks=16, link_gb_s=draw.choice([12, 25])),
        plan_case("3 B on four devices", width=3072, num_layers=26, num_ranks=4, num_sequences=draw.choice([4, 6, 12])),
    ])  # fmt: skip
