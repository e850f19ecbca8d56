"""Hidden cases of split_plan."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.tensor_parallel.split_plan.exercise import NETWORK, NVLINK, plan_case


def cases(draw: random.Random) -> list[Case]:
    def widths() -> tuple[int, ...]:
        inner = [draw.choice([64, 256, 1024, 4096, 14336]) for _ in range(3)]
        return (*(width for each in inner for width in (4096, each)), 4096)

    return for_half_and_all([
        plan_case("drawn widths, NVLink", widths(), 8, draw.choice([512, 2048]), 1.6e9, NVLINK),
        plan_case("drawn widths, across machines", widths(), 4, draw.choice([512, 2048]), 1.6e9, NETWORK),
    ])  # fmt: skip
