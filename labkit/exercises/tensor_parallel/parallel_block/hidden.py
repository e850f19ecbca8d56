"""Hidden cases of parallel_block."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.tensor_parallel.parallel_block.exercise import ATTENTION, MLP, block_case


def cases(draw: random.Random) -> list[Case]:
    width = draw.randint(2, 4)
    pairs = [[0, 3], [1, 2]]
    return [
        block_case("4 ranks, uneven hidden units", seed(draw), 4, MLP, hidden=draw.choice([9, 10, 11])),
        block_case("4 ranks, uneven heads", seed(draw), 4, ATTENTION, heads=draw.choice([5, 6, 7]), head_width=width),
        block_case("two groups, uneven heads", seed(draw), 4, ATTENTION, heads=3, head_width=width, groups=pairs),
        block_case("2 heads on 4 ranks, in groups of two", seed(draw), 4, ATTENTION, heads=2, groups=pairs),
        block_case("too many ranks", seed(draw), 4, ATTENTION, heads=draw.choice([2, 3])),
    ]
