"""Hidden cases of scatter."""

from __future__ import annotations

import random

from hidden.data_parallel.drawing import generator

from labkit.checks.case import Case, Value
from labkit.exercises.data_parallel.scatter.exercise import scatter_case
from labkit.exercises.data_parallel.trees import drawn


def cases(draw: random.Random) -> list[Case]:
    g = generator(draw)
    many, few = draw.randint(11, 17), draw.randint(2, 4)
    mixed: Value = {"tuple": [
        {"list": [drawn(g, many, 2), {"tuple": []}, True]},
        {"dict": {"x": {"tuple": [drawn(g, many)]}, "more": {"list": []}, "t": drawn(g)}},
    ]}  # fmt: skip
    return [
        scatter_case("many samples, 7 devices", drawn(g, many, 3), 7),
        scatter_case("few samples, 6 devices", {"tuple": [{"tuple": [drawn(g, few)]}, {"dict": {}}]}, 6),
        scatter_case("one sample, one device", drawn(g, 1, 2, 2), 1),
        scatter_case("nested, with empty containers", mixed, draw.randint(2, 5)),
        scatter_case("nothing to cut", {"tuple": [{"tuple": [3, "a text"]}, {"dict": {"flag": None}}]}, 3),
        scatter_case("other devices", {"dict": {"x": drawn(g, many)}}, ["meta", "cpu", "meta", "cpu"]),
    ]
