"""Hidden cases of interleaved."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.schedules.writing import order_case


def cases(draw: random.Random) -> list[Case]:
    asked = [(p, p * times, v) for p in (1, 2, 3, 4, 8) for times in (1, 2, 3) for v in (1, 2, 3, 4)]
    return [order_case("up to 8 stages, 24 microbatches and 4 chunks", "interleaved", asked)]
