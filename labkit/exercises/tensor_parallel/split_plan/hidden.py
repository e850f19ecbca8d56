"""Hidden cases of split_plan."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.challenge import for_half_and_all
from labkit.exercises.tensor_parallel.split_plan.exercise import NVLINK, deep_case


def cases(draw: random.Random) -> list[Case]:
    short = draw.sample([64, 128, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 14336], 8)
    deep = draw.sample([256, 320, 512, 640, 768, 1024, 1536, 2048, 4096, 12288, 14336, 16384], 12)
    return for_half_and_all([
        deep_case("16 matrices of drawn widths", short, draw.choice([512, 1024]), draw.uniform(0.35, 0.6), NVLINK),
        deep_case("24 matrices of drawn widths", deep, 512, draw.uniform(0.35, 0.6), NVLINK),
    ])  # fmt: skip
