"""Hidden cases of clipped_shards."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.sharded_training.clipped_shards.exercise import clipping_case


def cases(draw: random.Random) -> list[Case]:
    size = draw.choice([3, 5, 6])
    halves = draw.choice([[[0, 1], [2, 3]], [[0, 3], [1, 2]]])
    return [
        clipping_case(
            "4 ranks, two groups, one long, one short", seed(draw), [(size, 2), (1,), (), (9,)], 2.0, groups=halves
        ),
        clipping_case(
            "3 ranks, float16, one without", seed(draw), [(size,), (4, size), ()], 1.5, dtype="float16", scale=300.0
        ),
        clipping_case("2 ranks, short", seed(draw), [(size, 1), (size,)], 90.0),
        clipping_case("2 ranks, bfloat16", seed(draw), [(50, size), (40,)], 2.0, dtype="bfloat16"),
        clipping_case("3 ranks, nothing but zeros", seed(draw), [(size,), (2,), (size, 1)], 1.0, scale=0.0),
    ]
