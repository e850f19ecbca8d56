"""Hidden cases of split_plan."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.tensor_parallel.split_plan.exercise import NETWORK, NVLINK, deep_case, plan_case


def cases(draw: random.Random) -> list[Case]:
    inner = [draw.choice([64, 256, 1024, 4096, 14336]) for _ in range(3)]
    short = (*(width for each in inner for width in (4096, each)), 4096)
    deep = draw.sample([256, 320, 512, 640, 768, 1024, 1536, 2048, 4096, 12288, 14336, 16384], 12)
    return for_half_and_all([
        plan_case("drawn widths, across machines", short, 4, draw.choice([512, 2048]), 1.6e9, NETWORK),
        deep_case("24 matrices of drawn widths", deep, 512, draw.uniform(0.35, 0.6), NVLINK),
    ])  # fmt: skip
