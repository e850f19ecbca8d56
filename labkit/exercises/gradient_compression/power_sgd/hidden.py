"""Hidden cases of power_sgd."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.gradient_compression.power_sgd.exercise import power_case
from labkit.exercises.gradient_compression.together import together_case


def cases(draw: random.Random) -> list[Case]:
    def matrix(rows: int, columns: int) -> tuple[int, int]:
        return draw.randint(rows, rows + 5), draw.randint(columns, columns + 5)

    wide = (5, draw.randint(20, 40))
    return [
        together_case("5 ranks, four tensors", seed(draw), 5, [matrix(2, 3), (draw.randint(2, 9),), (3, 1, 2), (1,)]),
        together_case(
            "5 ranks, of which 0, 1 and 4 take part", seed(draw), 5, [(4,), matrix(1, 6), (2,)], group=(0, 1, 4)
        ),
        of_another_kind(
            power_case("4 ranks, means of rank 2", seed(draw), 4, [matrix(7, 7), matrix(7, 7)], 2, true_rank=2), draw
        ),
        power_case("2 ranks, a wide matrix and two biases", seed(draw), 2, [(4,), wide, (5,)], 3, true_rank=3),
        power_case(
            "3 ranks, convolutions and a bias", seed(draw), 3, [(8, 3, 3, 3), (8,), (4, 8, 1, 2)], 2, true_rank=2
        ),
        power_case("3 ranks, noise, ten calls", seed(draw), 3, [(16, 24), (16,)], 3, true_rank=3, noise=0.3, calls=10),
    ]
