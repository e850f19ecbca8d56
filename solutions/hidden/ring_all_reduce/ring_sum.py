"""Hidden cases of ring_sum."""

from __future__ import annotations

import random

from hidden.ring_all_reduce.drawing import not_divisible

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.ring_all_reduce.sums import sum_case


def cases(draw: random.Random) -> list[Case]:
    return [
        sum_case(seed(draw), 3, (not_divisible(draw, 3, 10, 30),)),
        sum_case(seed(draw), 4, (draw.randint(3, 5), 4)),
        sum_case(seed(draw), 5, (not_divisible(draw, 5, 11, 30),)),
        sum_case(seed(draw), 7, (draw.randint(2, 5),)),
        sum_case(seed(draw), 4, (0,)),
        sum_case(seed(draw), 8, (not_divisible(draw, 8, 17, 40),)),
        sum_case(seed(draw), 6, (2, draw.randint(4, 6)), group=sorted(draw.sample(range(1, 6), 3))),
        sum_case(seed(draw), 1, (draw.randint(2, 6),)),
        sum_case(seed(draw), 2, (draw.choice([5, 7, 9]),)),
    ]
