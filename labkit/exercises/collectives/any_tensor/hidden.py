"""Hidden cases of any_tensor."""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.collectives.hidden_tensors import large, numbers, over_some_ranks, small
from labkit.exercises.collectives.tensor_cases import drop_in_case
from labkit.exercises.sums_over_ranks.hidden_drawing import not_divisible
from labkit.exercises.sums_over_ranks.sums import fractions, used_before


def cases(draw: random.Random) -> list[Case]:
    long, rows = not_divisible(draw, 5, 11, 30), draw.randint(3, 5)
    return [
        *_operations_and_layouts(draw, long, rows),
        *_types(draw),
        *_some_ranks(draw, rows, sorted(draw.sample(range(1, 6), 3))),
    ]


def _operations_and_layouts(draw: random.Random, long: int, rows: int) -> list[Case]:
    return [
        drop_in_case(f"5 ranks, sum of {long} elements", numbers(draw, 5, long)),
        drop_in_case(f"5 ranks, average of {long} elements", numbers(draw, 5, long, dtype=torch.float64), op="AVG"),
        drop_in_case("4 ranks, largest of each", small(draw, 4, draw.randint(5, 11)), op="MAX"),
        drop_in_case("3 ranks, smallest of each", small(draw, 3, draw.randint(5, 11)), op="MIN"),
        drop_in_case("5 ranks, product", small(draw, 5, draw.randint(3, 7)), op="PRODUCT"),
        drop_in_case(f"3 ranks, transposed, {rows} x 4", numbers(draw, 3, 4, rows), layout="transposed"),
        drop_in_case("4 ranks, every other element", numbers(draw, 4, draw.choice([9, 13, 15])), layout="every other"),
        drop_in_case("3 ranks, one column", numbers(draw, 3, rows, 3), layout="column", op="SUM"),
        drop_in_case("3 ranks, inner rows", numbers(draw, 3, rows + 1, 3), layout="inner rows"),
        drop_in_case(
            "4 ranks, largest of each, one column",
            [tensor.view(rows, 3) for tensor in small(draw, 4, 3 * rows)],
            op="MAX",
            layout="column",
        ),
    ]


def _types(draw: random.Random) -> list[Case]:
    return [
        drop_in_case("7 ranks, int64", large(draw, 7, draw.randint(3, 9))),
        drop_in_case(
            "5 ranks, bfloat16, every other element",
            fractions(seed(draw), 5, (65,), torch.bfloat16),
            layout="every other",
        ),
        drop_in_case("8 ranks, bfloat16", fractions(seed(draw), 8, (96,), torch.bfloat16)),
        drop_in_case("8 ranks, float16", fractions(seed(draw), 8, (96,), torch.float16)),
        used_before(
            drop_in_case("4 ranks, average", numbers(draw, 4, 9, dtype=torch.float64), op="AVG"),
            seed(draw),
            draw.randint(1, 5),
        ),
    ]


def _some_ranks(draw: random.Random, rows: int, ranks: list[int]) -> list[Case]:
    return [
        drop_in_case(f"6 ranks, of which {ranks} take part", numbers(draw, 6, 7), group=ranks),
        *over_some_ranks(draw, rows, ranks),
    ]
