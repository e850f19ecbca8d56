"""Hidden cases of ring_sum."""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.sums_over_ranks.hidden_drawing import not_divisible
from labkit.exercises.sums_over_ranks.sums import sum_case, used_before


def cases(draw: random.Random) -> list[Case]:
    return [
        sum_case(seed(draw), 3, (not_divisible(draw, 3, 10, 30),)),
        sum_case(seed(draw), 4, (draw.randint(3, 5), 4)),
        sum_case(seed(draw), 5, (not_divisible(draw, 5, 11, 30),)),
        sum_case(seed(draw), 7, (draw.randint(2, 5),)),
        used_before(sum_case(seed(draw), 4, (0,)), seed(draw), draw.randint(5, 9)),
        sum_case(seed(draw), 8, (not_divisible(draw, 8, 17, 40),)),
        sum_case(seed(draw), 6, (2, draw.randint(4, 6)), group=sorted(draw.sample(range(1, 6), 3))),
        sum_case(seed(draw), 1, (draw.randint(2, 6),)),
        sum_case(seed(draw), 2, (draw.choice([5, 7, 9]),)),
        sum_case(
            seed(draw),
            6,
            (not_divisible(draw, 3, 7, 20),),
            group=sorted(draw.sample(range(1, 6), 3)),
            dtype=torch.float64,
        ),
        sum_case(seed(draw), 5, (draw.randint(1, 4),), dtype=torch.float64),
        used_before(sum_case(seed(draw), 4, (not_divisible(draw, 4, 9, 20),)), seed(draw), draw.randint(1, 3)),
        used_before(
            sum_case(seed(draw), 5, (draw.randint(2, 4), 3), group=sorted(draw.sample(range(1, 5), 2))),
            seed(draw),
            draw.randint(13, 20),
            torch.float64,
        ),
    ]
