"""Hidden cases of naive_all_reduce."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.ring_all_reduce.naive_all_reduce.exercise import naive_case


def cases(draw: random.Random) -> list[Case]:
    return [
        naive_case(seed(draw), 2, (draw.randint(3, 9),)),
        naive_case(seed(draw), 3, (draw.randint(4, 9),)),
        naive_case(seed(draw), 5, (draw.randint(2, 4), 3)),
        naive_case(seed(draw), 7, (draw.randint(5, 9),)),
    ]
