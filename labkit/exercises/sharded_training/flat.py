"""Flat shards as the judges of this lesson know them: drawn, cut into rows, compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks import draws
from labkit.checks.compare import listing
from labkit.checks.declared import Result, furthest

Shape = tuple[int, ...]


def drawn(seed: int, shape: Shape, dtype: torch.dtype) -> Tensor:
    """Return normally distributed numbers in a shape, which may be ()."""
    return draws.normal(seed, math.prod(shape), dtype=torch.float64).view(shape).to(dtype)


def rows(tensor: Tensor, count: int) -> Tensor:
    """Return the tensor as so many rows of equal length, padded with zeros."""
    flat = tensor.reshape(-1)
    return functional.pad(flat, (0, -len(flat) % count)).view(count, -1)


def mean(tensors: Sequence[Tensor]) -> Tensor:
    """Return the mean of several tensors in their dtype."""
    return torch.stack(list(tensors)).double().mean(0).to(tensors[0].dtype)


def same(mine: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    """Return whether two lists hold the same tensors, up to rounding in their dtype."""
    return len(mine) == len(right) and all(_close(a, b) for a, b in zip(mine, right, strict=True))


def _close(mine: Tensor, right: Tensor) -> bool:
    rtol, atol = _rounding(right.dtype)
    return mine.shape == right.shape and torch.allclose(mine.double(), right.double(), rtol=rtol, atol=atol)


def _rounding(dtype: torch.dtype) -> tuple[float, float]:
    """Return how far values may be off, as a share and at all: what cancels in bfloat16 keeps an error."""
    return (2e-2, 2e-2) if dtype == torch.bfloat16 else (1e-6, 1e-8)


def tensors_result(key: str, wrong: str, otherwise: str = "") -> Result:
    """Return the result that is a list of tensors; {tensor} in the sentence is the first that is wrong."""
    return Result(key, wrong, otherwise, same, _first_wrong)


def _first_wrong(came: Sequence[Tensor], wanted: Sequence[Tensor]) -> Mapping[str, object]:
    at = next(at for at, pair in enumerate(zip(came, wanted, strict=True)) if not _close(*pair))
    mine, right = came[at], wanted[at]
    entry = furthest(mine, right)
    counts = ["" if mine.shape == right.shape else f"{each.numel()} elements: " for each in (right, mine)]
    return {"tensor": at, "wanted": counts[0] + listing(right, entry), "got": counts[1] + listing(mine, entry)}
