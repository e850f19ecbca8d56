"""How weights moved where they did not move as they should, in a sentence."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.checks.tensor_values import ratio_of

_CLOSE = 1e-6


def how_moved(begin: Tensor, came: Tensor, wanted: Tensor) -> str:
    """Return what holds for all weights, as a sentence that begins with a space, or "".

    Args:
        begin: Where the weights began, shape (D,).
        came: Where they are, shape (D,).
        wanted: Where they should be, shape (D,).
    """
    if came.shape != wanted.shape or came.numel() < 2:
        return ""
    moved, right = came.double() - begin, wanted.double() - begin
    ratio = ratio_of(moved, right)
    if ratio is None:
        return _of_no_ratio(begin.double(), came.double(), moved, right)
    if abs(ratio - 1) < _CLOSE:
        return ""
    if abs(ratio) < _CLOSE:
        return " They have not moved."
    if abs(ratio + 1) < _CLOSE:
        return " They moved as far as they should, the wrong way."
    return f" They moved {ratio:.6g} times as far as they should."


def _of_no_ratio(begin: Tensor, came: Tensor, moved: Tensor, right: Tensor) -> str:
    if any(torch.allclose(came, sign * right, rtol=_CLOSE) for sign in (1, -1)):
        return " That is by how much they should have moved: the weights before were lost."
    if torch.allclose(moved, moved.flatten()[0].expand_as(moved), rtol=_CLOSE):
        return f" All moved by {moved.flatten()[0]:.6g}: the gradient had no part in that."
    if ratio_of(moved, right.square()) is not None:
        return " How far each moved goes with the square of its gradient."
    if ratio_of(moved, right * begin) is not None:
        return " How far each moved is multiplied by where it began: is that the learning rate?"
    if came.numel() > 2:
        centred = right - right.mean()
        factor = (centred * moved).sum() / (centred * centred).sum()
        besides = (moved - factor * right).mean()
        if torch.allclose(moved, factor * right + besides, rtol=_CLOSE):
            far = "as far" if abs(factor - 1) < _CLOSE else f"{factor:.6g} times as far"
            return f" They moved {far} as they should, and each by {besides:.6g} besides."
    return ""
