"""Numbers drawn for a case: the same for the same seed, unrelated for another one.

What one rank is given and another is not is drawn by a generator of its own, `generator(seed, "rank", rank)`, and a
seed that a rank is told is one of its own, `part_of(seed, "rank", rank)`: what a rank has tells nothing of the others'.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.torch_port.generators import generator, part_of

__all__ = ["generator", "normal", "part_of"]


def normal(seed: int, *shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return normally distributed numbers, times scale."""
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64).to(dtype) * scale
