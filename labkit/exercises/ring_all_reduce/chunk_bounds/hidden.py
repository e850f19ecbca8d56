"""Hidden cases of chunk_bounds."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.ring_all_reduce.chunk_bounds.exercise import bounds_case


def cases(draw: random.Random) -> list[Case]:
    sizes = [(draw.randint(20, 200), chunks) for chunks in (2, 3, 5, 7, 8)]
    short = [(draw.randint(1, chunks - 1), chunks) for chunks in (5, 7, 8)]
    edges = [(0, draw.randint(2, 9)), (draw.randint(1, 50), 1), (draw.randint(2, 9) * 8, 8), (1, 1)]
    return [
        bounds_case("drawn lengths", sizes),
        bounds_case("shorter than the number of chunks", short),
        bounds_case("empty, one chunk, sizes that divide", edges),
    ]
