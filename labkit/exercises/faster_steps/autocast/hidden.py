"""Hidden cases of autocast."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.faster_steps.autocast.exercise import autocast_case


def cases(draw: random.Random) -> list[Case]:
    return [
        autocast_case(f"{dtype}, drawn sizes", seed(draw), dtype, *(draw.randint(3, 12) for _ in range(4)))
        for dtype in ("bfloat16", "float16", "bfloat16")
    ]
