"""Gradients drawn for cases."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from labkit.checks import draws


def drawer(seed: int, size: int) -> Callable[[], Tensor]:
    """Return what draws gradients of that size, float64."""
    generator = draws.generator(seed)
    return lambda: torch.randn(size, generator=generator, dtype=torch.float64)
