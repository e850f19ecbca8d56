"""Data parallelism as plain loops in one process: what replicas must bring, and the first wrong tensor in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, cast

import torch
from torch import Tensor

from labkit.checks.case import Value
from labkit.checks.compare import listing
from labkit.checks.finding import Finding
from labkit.checks.tensor_values import close, ratio_of
from labkit.words import number

Gradients = Mapping[str, Tensor | None]
Tensors: TypeAlias = Mapping[str, Value]
BUFFERS = ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
"""Of the model in which replicas are told apart."""


def add_up(gradients: Sequence[Gradients]) -> dict[str, Tensor | None]:
    """Return the sum of gradients by name; one that nobody has stays None."""
    found: dict[str, Tensor | None] = {}
    for name in gradients[0]:
        there = [each[name] for each in gradients if each[name] is not None]
        found[name] = torch.stack(cast(list[Tensor], there)).sum(0) if there else None
    return found


def wrong_tensors(got: Tensors, right: Tensors, what: str, mistake: str) -> Iterator[Finding]:
    """Yield every tensor by name that is wrong, as one mistake.

    Args:
        got: Tensors by name that came.
        right: Those that must come.
        what: What they are, in words that begin a sentence.
        mistake: What all of them together show, or "".
    """
    for name, truth in right.items():
        mine = got.get(name)
        if close(mine, truth):
            continue
        if not isinstance(truth, Tensor):
            yield Finding(mistake, f"{what} of {name} should be None: nothing used it.")
        elif not isinstance(mine, Tensor):
            yield Finding(mistake, f"{what} of {name} is None.", f"{name}: {listing(truth)}", "None")
        else:
            ratio = ratio_of(mine, truth) if mine.shape == truth.shape else None
            how = "is wrong" if ratio is None else f"is {number(round(ratio, 6))} times what it should be"
            yield Finding(mistake, f"{what} of {name} {how}.", f"{name}: {listing(truth)}", f"{name}: {listing(mine)}")
