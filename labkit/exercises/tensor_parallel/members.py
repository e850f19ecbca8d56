"""What the ranks of a group hold together."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.checks.case import Case
from labkit.checks.groups import group_of
from labkit.checks.values import tensor

NO_GRADIENT = (
    "A result that is None was not returned. A gradient that is None did not come back: something is detached, or was "
    "computed where autograd does not look, or backward returned None, as dist.all_reduce does. Write forward and "
    "backward as a torch.autograd.Function, and call its apply()."
)


def part(count: int, case: Case, rank: int) -> slice:
    """Return a rank's part of `count` things, longer parts first."""
    ranks = group_of(case, rank)
    sizes = [count // len(ranks) + (place < count % len(ranks)) for place in range(len(ranks))]
    place = ranks.index(rank)
    return slice(sum(sizes[:place]), sum(sizes[: place + 1]))


def given(case: Case, rank: int, key: str) -> Tensor:
    """Return a tensor that a rank was given."""
    return tensor(case.inputs[rank], key)


def summed(case: Case, rank: int, key: str) -> Tensor:
    """Return the sum of what the ranks of a rank's group were given."""
    return torch.stack([given(case, each, key) for each in group_of(case, rank)]).sum(0)
