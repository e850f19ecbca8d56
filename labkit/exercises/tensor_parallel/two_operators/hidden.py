"""Hidden cases of two_operators."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.tensor_parallel.two_operators.exercise import operators_case


def cases(draw: random.Random) -> list[Case]:
    width = draw.randint(2, 6)
    return [
        operators_case("5 ranks", seed(draw), 5, (2, width)),
        operators_case(
            "4 ranks, groups of every other, transposed", seed(draw), 4, (3, width), [[0, 2], [1, 3]], turn=True
        ),
    ]
