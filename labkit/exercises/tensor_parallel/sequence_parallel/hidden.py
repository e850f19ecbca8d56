"""Hidden cases of sequence_parallel."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.tensor_parallel.sequence_parallel.exercise import GATHER, SCATTER, random_case, tokens_case


def cases(draw: random.Random) -> list[Case]:
    width, pairs = draw.randint(2, 5), [[0, 3], [1, 2]]
    return [
        tokens_case("gather, 4 ranks", seed(draw), 4, GATHER, (2, 8, width)),
        tokens_case("scatter, 4 ranks in two groups", seed(draw), 4, SCATTER, (3, 4, width), pairs),
        random_case("random numbers, 4 ranks", draw.randint(1, 10**6), draw.randint(1, 999), 4, apart=True),
        random_case("random numbers, 3 ranks, seed 0", draw.randint(1, 10**6), 0, 3, apart=True),
    ]
