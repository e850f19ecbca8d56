"""Hidden cases of halving_doubling."""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.collectives.halving_doubling.exercise import halving_case
from labkit.exercises.sums_over_ranks.sums import used_before


def cases(draw: random.Random) -> list[Case]:
    return [
        halving_case(seed(draw), 2, draw.choice([5, 7, 9])),
        halving_case(seed(draw), 4, draw.choice([9, 10, 11])),
        halving_case(seed(draw), 8, draw.choice([20, 28, 36])),  # halves of chunks and halves of the tensor differ
        halving_case(seed(draw), 8, draw.randint(3, 6)),
        halving_case(seed(draw), draw.choice([3, 5, 6]), 4),
        halving_case(seed(draw), 8, draw.choice([9, 19, 27]), dtype=torch.float64),
        used_before(halving_case(seed(draw), 4, draw.choice([6, 9, 13])), seed(draw), draw.randint(1, 5)),
    ]
