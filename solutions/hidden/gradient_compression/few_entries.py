"""Hidden cases of few_entries."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.gradient_compression.few_entries.exercise import sparse_case


def cases(draw: random.Random) -> list[Case]:
    return [
        sparse_case("drawn sizes", seed(draw), [((100 * draw.randint(1, 3) + 8,), 0.07)]),
        sparse_case("three dimensions", seed(draw), [((5, 6, draw.randint(4, 9)), 0.2)]),
        sparse_case("half of few", seed(draw), [((draw.randint(5, 9),), 0.5)]),
        sparse_case("one of sixty", seed(draw), [((60,), 0.001)]),
    ]
