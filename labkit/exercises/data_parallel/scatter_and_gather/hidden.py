"""Hidden cases of scatter_and_gather."""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case
from labkit.exercises.data_parallel.hidden_drawing import generator
from labkit.exercises.data_parallel.scatter_and_gather.exercise import drawn, gather_case, scatter_case


def cases(draw: random.Random) -> list[Case]:
    g = generator(draw)
    many, few = draw.randint(11, 17), draw.randint(2, 4)
    sizes = [draw.randint(1, 4) for _ in range(draw.randint(3, 6))]
    return [
        scatter_case("scatter: many samples, 7 devices", {"x": drawn(g, many, 3), "y": drawn(g, many)}, 7),
        scatter_case("scatter: few samples, 6 devices", {"a": drawn(g, few), "b": torch.arange(few)}, 6),
        scatter_case("scatter: one sample, one device", {"x": drawn(g, 1, 2, 2)}, 1),
        scatter_case("scatter: other devices", {"x": drawn(g, many), "m": drawn(g, many)}, ["meta", "cpu"] * 2),
        gather_case("gather: drawn sizes", [drawn(g, size, 3) for size in sizes]),
        gather_case("gather: one output", [drawn(g, 3)]),
        gather_case("gather: losses", [drawn(g) for _ in sizes]),
        gather_case("gather: losses to another device", [drawn(g) for _ in range(3)], "meta"),
    ]
