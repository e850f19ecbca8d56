"""Hidden cases of split_loader."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.data_parallel.split_loader.exercise import loader_case


def cases(draw: random.Random) -> list[Case]:
    size = draw.randint(30, 60)
    return [
        loader_case(
            "drawn sizes, three passes", size, draw.randint(5, 11), (5, 2, 3), seed=draw.randrange(1 << 30), epochs=3
        ),
        loader_case("in order", size, 7, (1, 4), shuffle=False),
        loader_case("small batches", 21, 2, (1, 1, 1, 6), seed=draw.randrange(1 << 30)),
        loader_case("one batch, one device", 20, 50, (3,), seed=draw.randrange(1 << 30)),
    ]
