"""Hidden cases of gather."""

from __future__ import annotations

import random

from hidden.data_parallel.drawing import generator

from labkit.checks.case import Case, Value
from labkit.exercises.data_parallel.gather.exercise import gather_case
from labkit.exercises.data_parallel.trees import drawn


def cases(draw: random.Random) -> list[Case]:
    g = generator(draw)
    sizes = [draw.randint(1, 4) for _ in range(draw.randint(3, 6))]
    nested: list[Value] = [
        {"tuple": [drawn(g, size, 2), {"dict": {"loss": drawn(g), "rows": {"list": [drawn(g, size), 7]}}}, None]}
        for size in sizes
    ]
    return [
        gather_case("drawn sizes", [drawn(g, size, 3) for size in sizes]),
        gather_case("one output", [drawn(g, 3)]),
        gather_case("losses", [drawn(g) for _ in sizes]),
        gather_case("nested", nested),
        gather_case("a tuple to another device", [{"tuple": [drawn(g, 2), drawn(g)]} for _ in range(3)], "meta"),
    ]
