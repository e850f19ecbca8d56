"""Numbers drawn for a case: the same for the same seed."""

from __future__ import annotations

import torch
from torch import Tensor


def generator(seed: int) -> torch.Generator:
    """Return a generator with this seed."""
    return torch.Generator().manual_seed(seed)


def normal(seed: int, *shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return normally distributed numbers, times scale."""
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64).to(dtype) * scale
