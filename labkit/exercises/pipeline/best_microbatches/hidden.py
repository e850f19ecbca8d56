"""Hidden cases of best_microbatches."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.pipeline.best_microbatches.exercise import best_case


def cases(draw: random.Random) -> list[Case]:
    drawn = [
        (draw.randint(1, 16), draw.uniform(0.01, 1.0), draw.uniform(1e-5, 1e-2), draw.randint(1, 200)) for _ in range(8)
    ]
    edges = [(4, 0.1, 0.0, draw.randint(5, 50)), (1, 0.1, 0.01, 9), (8, 0.5, 1e-4, 3)]
    return [best_case("drawn pipelines", drawn), best_case("edges", edges)]
