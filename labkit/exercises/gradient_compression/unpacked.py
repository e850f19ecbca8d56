"""What compressing and unpacking with a stand-in leaves of a gradient, for the side that judges."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.checks.case import Values
from labkit.checks.values import integer, number, text

WINDOW = "window"
ROUNDING = "rounding"
OWN = "own"


def unpacked(about: Values, gradient: Tensor) -> Tensor:
    """Return what is left of a gradient by the stand-in that `about` describes (see `stand_ins.stand_in`).

    What the learner's own compressor leaves is the gradient, but for its rounding.
    """
    if text(about, "kind") == OWN:
        return gradient
    left, flat = torch.zeros_like(gradient), gradient.flatten()
    if text(about, "kind") == ROUNDING:
        every = integer(about, "every") if "every" in about else 1
        left.view(-1)[::every] = rounded(flat[::every], number(about, "step"))
        return left
    length = integer(about, "length")
    start = min(integer(about, "start"), max(0, gradient.numel() - length))
    left.view(-1)[start : start + length] = flat[start : start + length]
    return left


def rounded(gradient: Tensor, step: float) -> Tensor:
    """Return the nearest whole multiples of a step."""
    return (gradient / step).round() * step
