"""Hidden cases of parallel_block."""

from __future__ import annotations

import random
from typing import Any

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.tensor_parallel.parallel_block.exercise import block_case
from labkit.exercises.tensor_parallel.parallel_block.parts import ATTENTION, MLP


def cases(draw: random.Random) -> list[Case]:
    width = draw.randint(2, 4)
    pairs = [[0, 3], [1, 2]]

    def attention_case(name: str, **options: Any) -> Case:
        return block_case(name, seed(draw), 4, ATTENTION, apart=True, **options)

    return [
        block_case(
            "two groups, uneven hidden units", seed(draw), 4, MLP, hidden=draw.choice([7, 9]), apart=True, groups=pairs
        ),
        block_case("4 ranks, uneven hidden units", seed(draw), 4, MLP, hidden=draw.choice([9, 10, 11]), apart=True),
        attention_case("4 ranks, uneven heads", heads=draw.choice([5, 6, 7]), head_width=width),
        attention_case("two groups, uneven heads", heads=3, head_width=width, groups=pairs),
        attention_case("2 heads on 4 ranks, in groups of two", heads=2, groups=pairs),
        attention_case("too many ranks", heads=draw.choice([2, 3])),
    ]
