"""Hidden cases of tree_all_reduce."""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.sums_over_ranks.sums import sum_case, used_before


def cases(draw: random.Random) -> list[Case]:
    return [
        sum_case(seed(draw), 2, (draw.randint(2, 6),)),
        sum_case(seed(draw), 3, (draw.randint(2, 6),)),
        sum_case(seed(draw), 5, (2, draw.randint(2, 4))),
        sum_case(seed(draw), 7, (draw.randint(2, 6),)),
        sum_case(seed(draw), 8, (draw.randint(2, 6),)),
        sum_case(seed(draw), 6, (3,), group=sorted(draw.sample(range(1, 6), 4)), dtype=torch.float64),
        used_before(
            sum_case(seed(draw), 5, (draw.randint(2, 6),), dtype=torch.float64), seed(draw), draw.randint(7, 9)
        ),
        sum_case(seed(draw), 6, (draw.randint(2, 6),), group=sorted(draw.sample(range(1, 6), 3))),
    ]
