"""Hidden cases of mean_of_packets."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.gradient_compression.mean_of_packets.exercise import mean_case


def cases(draw: random.Random) -> list[Case]:
    def starts(count: int, most: int) -> list[int]:
        return [draw.randint(0, most) for _ in range(count)]

    return [
        mean_case("5 ranks, places that overlap", seed(draw), (20,), starts(5, 13), 7),
        mean_case("3 ranks, a tensor of three dimensions", seed(draw), (4, 5, 6), starts(3, 100), draw.randint(3, 9)),
        mean_case("2 ranks", seed(draw), (31,), starts(2, 20), 5),
        mean_case(
            "5 ranks, of which 0, 2 and 4 take part",
            seed(draw),
            (50,),
            starts(3, 40),
            4,
            group=(0, 2, 4),
            world_size=5,
        ),
    ]
