"""Hidden cases of all_to_all."""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.collectives.all_to_all.exercise import exchange_case


def cases(draw: random.Random) -> list[Case]:
    def table(count: int) -> list[list[int]]:
        sizes = [[draw.randint(1, 4) for _ in range(count)] for _ in range(count)]
        sizes[draw.randrange(count)][draw.randrange(count)] = 0
        return sizes

    group = sorted(draw.sample(range(1, 6), 3))
    return [
        exchange_case("2 ranks, drawn sizes", table(2), seed(draw)),
        exchange_case("4 ranks, one element each", [[1] * 4] * 4, seed(draw)),
        exchange_case("5 ranks, drawn sizes", table(5), seed(draw)),
        exchange_case("7 ranks, drawn sizes", table(7), seed(draw)),
        exchange_case(f"6 ranks, of which {group} take part", table(3), seed(draw), world_size=6, group=group),
        exchange_case("3 ranks, drawn sizes, float64", table(3), seed(draw), dtype=torch.float64),
        exchange_case(
            f"6 ranks, of which {group} take part, int64",
            table(3),
            seed(draw),
            world_size=6,
            group=group,
            dtype=torch.int64,
        ),
    ]
