"""Hidden cases of offload_plan."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.sharded_training.offload_plan.exercise import offload_case


def cases(draw: random.Random) -> list[Case]:
    return for_half_and_all([
        offload_case("13 B, another memory", memory_gb=draw.choice([22, 26, 28])),
        offload_case(
            "20 B on sixteen devices", width=6144, num_layers=44, num_ranks=16, host_gb_s=draw.choice([6, 12])
        ),
        offload_case("7 B on four devices", width=4096, num_layers=32, num_ranks=4, num_samples=draw.choice([4, 8])),
    ])  # fmt: skip
