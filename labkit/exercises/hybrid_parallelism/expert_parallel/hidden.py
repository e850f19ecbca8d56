"""Hidden cases of expert_parallel."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.hybrid_parallelism.routing import routed_case


def cases(draw: random.Random) -> list[Case]:
    few, many = draw.randint(2, 4), draw.randint(7, 9)
    return [
        routed_case("4 ranks, 2 experts each", seed(draw), [[0, 1, 2, 3]], (few, many, 5, 6), 2, draw.randint(2, 3)),
        of_another_kind(
            routed_case("4 ranks, two groups", seed(draw), [[0, 1], [2, 3]], (many, few, 6, 7), 3, draw.randint(2, 3)),
            draw,
        ),
        routed_case("3 ranks, 1 expert each", seed(draw), [[0, 1, 2]], (6, many, few), 1, draw.randint(3, 5)),
    ]
