"""Hidden cases of context_ring."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.hybrid_parallelism.rings import ring_case


def cases(draw: random.Random) -> list[Case]:
    return [
        ring_case("4 ranks, mixed tokens", seed(draw), [[0, 1, 2, 3]], draw.randint(2, 4), "mixed"),
        ring_case(
            "4 ranks, two groups, large scores", seed(draw), [[0, 1], [2, 3]], draw.randint(3, 5), "mixed", large=True
        ),
        ring_case("3 ranks, backwards", seed(draw), [[0, 1, 2]], draw.randint(2, 4), "backwards"),
    ]
