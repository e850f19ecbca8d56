"""How a loss was made, read from its graph: a mean or a sum of how many elements, times which number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from labkit.torch_port.operators import unanswered, uncounted

_PASSES = ("Alias", "Clone", "Squeeze", "ToCopy", "Unsqueeze", "View", "Reshape", "Select", "Expand")
_WITH_REDUCTION = ("BinaryCrossEntropy", "Huber", "KlDiv", "L1Loss", "Mse", "NllLoss", "SmoothL1", "SoftMargin")
_MEAN, _SUM = 1, 2
_DEEPEST = 64


@dataclass(frozen=True)
class LossRoot:
    """A mean or a sum, times a number.

    Attributes:
        is_mean: Whether it is a mean.
        factor: The number that it was multiplied by: 0.25 for ``loss / 4``.
        count: Of how many it is, None where the graph does not say: elements, or targets that were not ignored.
        counted: What was counted, "targets" or "elements".
    """

    is_mean: bool
    factor: float
    count: float | None
    counted: str

    @property
    def weight(self) -> float | None:
        """What it weighs as a mean: 1 for a mean as it is, and for a sum that was divided by its count."""
        if self.is_mean:
            return self.factor
        return None if self.count is None else self.factor * self.count


def loss_root(loss: torch.Tensor) -> LossRoot | None:
    """Return how a loss was made of a mean or a sum, None where it was made in another way."""
    with uncounted(), unanswered(), torch.no_grad():
        return _root(loss.grad_fn, 1.0, _DEEPEST)


def _root(node: Any, factor: float, left: int) -> LossRoot | None:
    if node is None or not left:
        return None
    name = type(node).__name__
    before = [each for each, _ in node.next_functions if each is not None]
    if name.startswith(("Div", "Mul")):
        number = _number(node)
        if number is None or not number:
            return None
        return _root(before[0], factor / number if name.startswith("Div") else factor * number, left - 1)
    if name.startswith("Add"):
        parts = [_root(each, factor, left - 1) for each in before]
        first = parts[0] if parts else None
        return first if all(each == first for each in parts) else None
    if name.startswith(_PASSES):
        return _root(before[0], factor, left - 1) if before else None
    if name.startswith(("MeanBackward", "SumBackward")):
        sizes = getattr(node, "_saved_self_sym_sizes", None)
        count = getattr(node, "_saved_self_sym_numel", None) if sizes is None else _product(sizes)
        return LossRoot(name.startswith("Mean"), factor, None if count is None else float(count), "elements")
    if name.startswith(_WITH_REDUCTION) and getattr(node, "_saved_reduction", None) in (_MEAN, _SUM):
        is_mean = node._saved_reduction == _MEAN
        if name.startswith("NllLoss"):
            targets, ignored = node._saved_target, node._saved_ignore_index
            count = None if targets.is_meta else float((targets != ignored).sum())
            return LossRoot(is_mean, factor, count, "targets")
        return LossRoot(is_mean, factor, float(node._saved_self.numel()), "elements")
    return None


def _number(node: Any) -> float | None:
    """Return the constant that a product or quotient has beside what the gradient goes to."""
    if len([each for each, _ in node.next_functions if each is not None]) != 1:
        return None
    for name in ("_saved_other", "_saved_self"):
        value = getattr(node, name, None)
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            return None if value.is_meta else float(value.item())
    return None


def _product(sizes: Any) -> int:
    product = 1
    for size in sizes:
        product *= int(size)
    return product


NEEDED = {
    "what autograd saved of a mean": lambda: loss_root(_example().mean()),
    "what autograd saved of a loss function": lambda: loss_root(
        torch.nn.functional.cross_entropy(_example(), torch.zeros(2, dtype=torch.int64)) / 2
    ),
}
"""Name -> how it is reached; a test calls each."""


def _example() -> torch.Tensor:
    return torch.zeros(2, 3, requires_grad=True)
