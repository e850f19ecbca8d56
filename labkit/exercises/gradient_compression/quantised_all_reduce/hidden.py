"""Hidden cases of quantised_all_reduce: groups, dtypes, layouts and sizes that do not divide, together."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.gradient_compression.quantised_all_reduce.exercise import quantised_case


def cases(draw: random.Random) -> list[Case]:
    scales = [10 ** draw.uniform(-3, 3) for _ in range(3)]
    return [
        quantised_case(
            "5 ranks, three dimensions, not contiguous", seed(draw), 5, (3, 9, draw.randint(8, 12)), gaps=True,
        ),
        quantised_case(
            "5 ranks, of which 1, 2 and 4 take part, float64", seed(draw), 5, (draw.randint(150, 250),), scales=scales,
            group=(1, 2, 4), double=True, outlier=True,
        ),
        quantised_case(
            "4 ranks, of which 0, 1 and 3 take part, not contiguous", seed(draw), 4, (7, draw.randint(20, 30)),
            group=(0, 1, 3), gaps=True,
        ),
    ]  # fmt: skip
