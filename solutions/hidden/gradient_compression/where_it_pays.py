"""Hidden cases of where_it_pays."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.gradient_compression.where_it_pays.exercise import cost_case


def cases(draw: random.Random) -> list[Case]:
    worlds = [
        (
            10 ** draw.uniform(3, 9), 10 ** draw.uniform(2, 8), draw.choice([2, 3, 8, 64, 200]),
            draw.uniform(0, 1e-4), 10 ** draw.uniform(8, 11), draw.uniform(1e-5, 1e-2),
        )
        for _ in range(12)
    ]  # fmt: skip
    return [
        cost_case("drawn worlds", worlds),
        cost_case("no cost", [(1e6, 1e3, draw.randint(2, 9), 0.0, 1e9, 0.0), (1e6, 1e6, 64, 1e-5, 1e9, 0.0)]),
    ]
