"""Hidden cases of drop_in_all_reduce."""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.collectives.drop_in_all_reduce.exercise import both_signs, drop_in_case, near_the_end
from labkit.exercises.sums_over_ranks.hidden_drawing import not_divisible
from labkit.exercises.sums_over_ranks.sums import fractions, used_before, whole_numbers


def cases(draw: random.Random) -> list[Case]:
    long, rows = not_divisible(draw, 5, 11, 30), draw.randint(3, 5)
    group = sorted(draw.sample(range(1, 6), 3))
    return [
        *_operations_and_layouts(draw, long, rows),
        *_groups_and_handles(draw, rows, group),
        *_types_and_what_ran_before(draw, group),
    ]


def _operations_and_layouts(draw: random.Random, long: int, rows: int) -> list[Case]:
    return [
        drop_in_case(f"5 ranks, sum of {long} elements", _numbers(draw, 5, long)),
        drop_in_case(f"5 ranks, average of {long} elements", _numbers(draw, 5, long, dtype=torch.float64), op="AVG"),
        drop_in_case("4 ranks, largest of each", _small(draw, 4, draw.randint(5, 11)), op="MAX"),
        drop_in_case("3 ranks, smallest of each", _small(draw, 3, draw.randint(5, 11)), op="MIN"),
        drop_in_case("5 ranks, product", _small(draw, 5, draw.randint(3, 7)), op="PRODUCT"),
        drop_in_case(f"3 ranks, transposed, {rows} x 4", _numbers(draw, 3, 4, rows), layout="transposed"),
        drop_in_case("4 ranks, every other element", _numbers(draw, 4, draw.choice([9, 13, 15])), layout="every other"),
        drop_in_case("3 ranks, one column", _numbers(draw, 3, rows, 3), layout="column", op="SUM"),
        drop_in_case("3 ranks, inner rows", _numbers(draw, 3, rows + 1, 3), layout="inner rows"),
        drop_in_case(
            "7 ranks, int64", whole_numbers(seed(draw), 7, (draw.randint(3, 9),), torch.int64, largest=1 << 55)
        ),
    ]


def _groups_and_handles(draw: random.Random, rows: int, group: list[int]) -> list[Case]:
    return [
        drop_in_case("4 ranks, async_op=True", _numbers(draw, 4, draw.randint(7, 11)), asynchronous=True),
        drop_in_case(f"6 ranks, of which {group} take part", _numbers(draw, 6, 7), group=group),
        drop_in_case(
            f"6 ranks, average over {group}", _numbers(draw, 6, 8, dtype=torch.float64), group=group, op="AVG"
        ),
        drop_in_case(
            f"6 ranks, of which {group} take part, async_op=True, every other element",
            _numbers(draw, 6, 9),
            group=group,
            asynchronous=True,
            layout="every other",
        ),
        drop_in_case(
            f"6 ranks, average over {group}, transposed, float64",
            _numbers(draw, 6, 4, rows, dtype=torch.float64),
            group=group,
            op="AVG",
            layout="transposed",
        ),
        drop_in_case(
            "4 ranks, largest of each, one column, async_op=True",
            [tensor.view(rows, 3) for tensor in _small(draw, 4, 3 * rows)],
            op="MAX",
            layout="column",
            asynchronous=True,
        ),
        drop_in_case(
            f"6 ranks, smallest of each over {group}, int64",
            whole_numbers(seed(draw), 6, (draw.randint(4, 9),), torch.int64, largest=1 << 55),
            group=group,
            op="MIN",
        ),
    ]


def _types_and_what_ran_before(draw: random.Random, group: list[int]) -> list[Case]:
    return [
        drop_in_case(
            "5 ranks, bfloat16, every other element",
            fractions(seed(draw), 5, (65,), torch.bfloat16),
            layout="every other",
        ),
        drop_in_case(
            f"6 ranks, float16, of which {group} take part, async_op=True",
            fractions(seed(draw), 6, (48,), torch.float16),
            group=group,
            asynchronous=True,
        ),
        used_before(
            drop_in_case("4 ranks, average", _numbers(draw, 4, 9, dtype=torch.float64), op="AVG"),
            seed(draw),
            draw.randint(1, 5),
        ),
        used_before(
            drop_in_case(
                f"6 ranks, of which {group} take part, async_op=True",
                _numbers(draw, 6, 7),
                group=group,
                asynchronous=True,
            ),
            seed(draw),
            draw.randint(10, 15),
            torch.float64,
        ),
        drop_in_case(f"6 ranks, average over {group}, float16", near_the_end(seed(draw), 6, 9), group=group, op="AVG"),
        drop_in_case("8 ranks, bfloat16", fractions(seed(draw), 8, (96,), torch.bfloat16)),
        drop_in_case("8 ranks, float16", fractions(seed(draw), 8, (96,), torch.float16)),
        drop_in_case(f"6 ranks, average of integers over {group}", both_signs(seed(draw), 6, 9), group=group, op="AVG"),
    ]


def _numbers(
    draw: random.Random, world_size: int, *shape: int, dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    return whole_numbers(seed(draw), world_size, shape, dtype)


def _small(draw: random.Random, world_size: int, numel: int) -> list[torch.Tensor]:
    return [tensor - 4 for tensor in whole_numbers(seed(draw), world_size, (numel,), largest=9)]
