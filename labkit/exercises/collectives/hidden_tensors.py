"""What the hidden cases of lesson 03's ring for any tensor and of its drop-in share: tensors, and cases of a group."""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.collectives.tensor_cases import both_signs, drop_in_case, near_the_end
from labkit.exercises.sums_over_ranks.sums import whole_numbers


def numbers(
    draw: random.Random, world_size: int, *shape: int, dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    """Return a tensor of whole numbers for each rank; sums of them are exact."""
    return whole_numbers(seed(draw), world_size, shape, dtype)


def large(draw: random.Random, world_size: int, numel: int) -> list[torch.Tensor]:
    """Return int64 tensors of numbers that float64 does not hold."""
    return whole_numbers(seed(draw), world_size, (numel,), torch.int64, largest=1 << 55)


def small(draw: random.Random, world_size: int, numel: int) -> list[torch.Tensor]:
    """Return tensors of whole numbers from -3 to 5."""
    return [tensor - 4 for tensor in whole_numbers(seed(draw), world_size, (numel,), largest=9)]


def over_some_ranks(draw: random.Random, rows: int, ranks: list[int]) -> list[Case]:
    """Return cases of six ranks, of which these take part, with another operation, layout or dtype each."""
    return [
        drop_in_case(
            f"6 ranks, average over {ranks}, transposed, float64",
            numbers(draw, 6, 4, rows, dtype=torch.float64),
            group=ranks,
            op="AVG",
            layout="transposed",
        ),
        drop_in_case(
            f"6 ranks, smallest of each over {ranks}, int64",
            large(draw, 6, draw.randint(4, 9)),
            group=ranks,
            op="MIN",
        ),
        drop_in_case(f"6 ranks, average over {ranks}, float16", near_the_end(seed(draw), 6, 9), group=ranks, op="AVG"),
        drop_in_case(f"6 ranks, average of integers over {ranks}", both_signs(seed(draw), 6, 9), group=ranks, op="AVG"),
    ]
