"""Hidden cases of few_entries: shape, dtype, layout and share together."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.gradient_compression.few_entries.exercise import sparse_case


def cases(draw: random.Random) -> list[Case]:
    wide = (100 * draw.randint(1, 3) + 8,)
    return [
        sparse_case("a vector of float64, not contiguous", seed(draw), [(wide, 0.07)], gaps=True, double=True),
        sparse_case("three dimensions, float32", seed(draw), [((5, 6, draw.randint(4, 9)), 0.2)], double=False),
        sparse_case("half of few, not contiguous", seed(draw), [((draw.randint(5, 9),), 0.5)], gaps=True),
        sparse_case("one of sixty, two shapes in turn", seed(draw), [((60,), 0.001)], double=True, between=True),
        sparse_case("all magnitudes alike", seed(draw), [((draw.randint(31, 60),), 0.2)], alike=True),
        sparse_case("two shapes", seed(draw), [((draw.randint(5, 8), 9), 0.3), ((41,), 0.1)], gaps=True, double=False),
    ]
