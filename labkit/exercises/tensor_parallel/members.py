"""Groups of a case, what their ranks hold together, and the first tensor that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import torch
from torch import Tensor

from labkit.checks import values
from labkit.checks.as_if import Way, as_if
from labkit.checks.case import Case, Values
from labkit.checks.compare import near, wrong_value
from labkit.checks.finding import Finding
from labkit.words import are_wrong

Ways = Callable[[int], Sequence[Way[Tensor]]]
NO_GRADIENT = (
    "No gradient came back. Autograd does not see dist.*: write forward and backward as a torch.autograd.Function, "
    "and call its apply()."
)


def members(case: Case, rank: int) -> list[int]:
    """Return the ranks of a rank's group."""
    groups = cast("list[list[int]]", case.inputs[0].get("groups") or [list(range(case.world_size))])
    return next(ranks for ranks in groups if rank in ranks)


def part(count: int, case: Case, rank: int) -> slice:
    """Return a rank's part of `count` things, longer parts first."""
    sizes = [count // len(members(case, rank))] * len(members(case, rank))
    for place in range(count - sum(sizes)):
        sizes[place] += 1
    place = members(case, rank).index(rank)
    return slice(sum(sizes[:place]), sum(sizes[: place + 1]))


def summed(case: Case, rank: int, key: str) -> Tensor:
    """Return the sum of what the ranks of a rank's group were given."""
    return torch.stack([values.tensor(case.inputs[each], key) for each in members(case, rank)]).sum(0)


def wrong_tensors(
    got: Sequence[Values], right: Sequence[Values], key: str, what: str, ways: Ways = lambda rank: ()
) -> Iterator[Finding]:
    """Yield a finding on the first rank whose tensor is wrong, named by the first way that gives what came.

    Args:
        got: What came from each rank.
        right: What must come; a rank without the key is not looked at.
        key: Where the tensor is.
        what: What it is, in words.
        ways: For each rank the mistakes that are tried.
    """
    pairs = {
        rank: (values.tensor(came, key), values.tensor(wanted, key))
        for rank, (came, wanted) in enumerate(zip(got, right, strict=True))
        if key in wanted
    }
    wrong = {rank: pair for rank, pair in pairs.items() if not near(*pair)}
    for rank, (came, wanted) in wrong.items():
        name = as_if(came, ways(rank), near)
        yield wrong_value(name, f"{are_wrong(wrong, len(got))}: {what} on rank {rank}", came, wanted, rank)
        return
