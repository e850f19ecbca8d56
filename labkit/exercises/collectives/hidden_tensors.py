"""Tensors that the hidden cases of lesson 03's drop-in draw."""

from __future__ import annotations

import random

import torch

from labkit.checks.hidden import seed
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
