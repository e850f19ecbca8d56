"""Hidden cases of drop_in_all_reduce."""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.collectives.hidden_tensors import numbers, over_some_ranks, small
from labkit.exercises.collectives.tensor_cases import drop_in_case
from labkit.exercises.sums_over_ranks.sums import fractions, used_before


def cases(draw: random.Random) -> list[Case]:
    rows, group = draw.randint(3, 5), sorted(draw.sample(range(1, 6), 3))
    return [*_groups(draw, rows, group), *_handles(draw, rows, group)]


def _groups(draw: random.Random, rows: int, group: list[int]) -> list[Case]:
    return [
        drop_in_case(f"6 ranks, of which {group} take part", numbers(draw, 6, 7), group=group),
        drop_in_case(f"6 ranks, average over {group}", numbers(draw, 6, 8, dtype=torch.float64), group=group, op="AVG"),
        *over_some_ranks(draw, rows, group),
    ]


def _handles(draw: random.Random, rows: int, group: list[int]) -> list[Case]:
    return [
        drop_in_case("4 ranks, async_op=True", numbers(draw, 4, draw.randint(7, 11)), asynchronous=True),
        drop_in_case("5 ranks, product, async_op=True", small(draw, 5, draw.randint(3, 7)), op="PRODUCT",
                     asynchronous=True),
        drop_in_case(
            "4 ranks, largest of each, one column, async_op=True",
            [tensor.view(rows, 3) for tensor in small(draw, 4, 3 * rows)],
            op="MAX",
            layout="column",
            asynchronous=True,
        ),
        drop_in_case(
            f"6 ranks, of which {group} take part, async_op=True, every other element",
            numbers(draw, 6, 9),
            group=group,
            asynchronous=True,
            layout="every other",
        ),
        drop_in_case(
            f"6 ranks, float16, of which {group} take part, async_op=True",
            fractions(seed(draw), 6, (48,), torch.float16),
            group=group,
            asynchronous=True,
        ),
        used_before(
            drop_in_case(
                f"6 ranks, of which {group} take part, async_op=True",
                numbers(draw, 6, 7),
                group=group,
                asynchronous=True,
            ),
            seed(draw),
            draw.randint(10, 15),
            torch.float64,
        ),
    ]  # fmt: skip
