"""The mean over ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.blame import HANGS, Sign, blaming
from labkit.checks.case import Case, Values
from labkit.checks.compare import difference, listing
from labkit.checks.exercise import Exercise, Functions, Sweep
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.par import Par, Score
from labkit.checks.values import tensor
from labkit.checks.wire import Wire
from labkit.exercises.start_here.average.driver import drive
from labkit.words import are_wrong


def mean_case(seed: int, world_size: int, shape: Sequence[int]) -> Case:
    """Return a case of average: whole numbers, different on every rank."""
    tensors = [
        torch.randint(1, 1000, tuple(shape), generator=draws.generator(seed, "rank", rank)).float()
        for rank in range(world_size)
    ]
    name = f"{world_size} rank{'s' if world_size > 1 else ''}, {' x '.join(map(str, shape))} elements"
    return Case(name, world_size, tuple({"tensor": tensor} for tensor in tensors))


def given(case: Case) -> Tensor:
    """Return what all ranks were given, stacked, in float64."""
    return torch.stack([tensor(inputs, "tensor") for inputs in case.inputs]).double()


def means(case: Case) -> list[Values]:
    """Return the mean over ranks for every rank (the oracle)."""
    return [{"tensor": given(case).mean(0).float()} for _ in case.inputs]


def least_traffic(case: Case) -> dict[int, Bytes]:
    """Return what must travel: each rank's tensor into all means, and the others' into its own."""
    return both_ways(range(case.world_size), tensor(case.inputs[0], "tensor").numel())


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield the first rank whose tensor does not hold the mean over all ranks."""
    came, expected = [tensor(values, "tensor") for values in got], tensor(means(case)[0], "tensor")
    slack = 1e-5 * given(case).abs().max()
    wrong = {rank: first for rank, mine in enumerate(came) if (first := difference(mine, expected, slack)) is not None}
    if not wrong:
        return
    rank, first = next(iter(wrong.items()))
    yield Finding(
        next((name for name, rule in _RULES if _all_are(case, came, rule)), ""),
        f"{are_wrong(wrong, case.world_size)}. Rank {rank} has {first.got}, expected {first.expected}.",
        f"rank {rank}: {listing(expected.reshape(-1), first.index)}",
        f"rank {rank}: {listing(came[rank].reshape(-1), first.index)}",
        rank,
    )


def average_100_mb(functions: Functions) -> None:
    """Average 100 MB once: what par is measured with."""
    functions["average"](torch.empty(25_000_000, device="meta"))


Rule: TypeAlias = Callable[[Tensor, int], "Tensor | None"]
"""What a wrong rule makes of what was given, stacked, on a rank; None for whatever came there."""


def _all_are(case: Case, came: Sequence[Tensor], rule: Rule) -> bool:
    """Return whether the ranks' tensors are what a wrong rule makes of what was given."""
    stack = given(case)
    return all(
        wrong is None or torch.allclose(mine.double(), wrong, rtol=1e-4, atol=1e-4)
        for mine, wrong in ((mine, rule(stack, rank)) for rank, mine in enumerate(came))
    )


def _divided_by(count: int) -> Rule:
    return lambda stack, rank: stack.sum(0) / count if count != len(stack) else stack.sum(0) * math.nan


_NOT_IN_PLACE, _SUM, _TWICE = "not in place", "sum called mean", "divided twice"
_FIXED, _ON_ONE = "number of ranks written into the code", "divided on rank 0 only"
_REDUCE, _OWN_MEAN = "only rank 0 has it", "mean of the elements"
_RETURNS, _ALONE = "what all_reduce returns", "not every rank takes part"
_RULES: tuple[tuple[str, Rule], ...] = (
    (_NOT_IN_PLACE, lambda stack, rank: stack[rank]),
    (_SUM, lambda stack, rank: stack.sum(0)),
    (_TWICE, lambda stack, rank: stack.mean(0) / len(stack)),
    *((_FIXED, _divided_by(count)) for count in (2, 3, 4, 8)),
    (_ON_ONE, lambda stack, rank: stack.sum(0) if rank else stack.mean(0)),
    (_REDUCE, lambda stack, rank: None if rank else stack.mean(0)),
    (_OWN_MEAN, lambda stack, rank: stack[rank].mean().expand_as(stack[rank])),
)
_SIGNS: Mapping[str, Sign] = {
    _RETURNS: lambda case, failure, wire: (
        failure.error in ("TypeError", "AttributeError") and "NoneType" in failure.message
    ),
    _ALONE: lambda case, failure, wire: failure.kind in (*HANGS, "died", "exception"),
}
MISTAKES = {
    _NOT_IN_PLACE: (
        "No tensor changed. The mean must end up in the tensor that was passed in: change it, do not return another."
    ),
    _SUM: "Every rank holds the sum: all_reduce adds and does not divide. If you did divide, the quotient went to a "
    "new tensor: tensor = tensor / n only binds the name to it, tensor /= n changes the tensor you were given.",
    _TWICE: "Every rank holds the mean divided by the number of ranks once more. Divide once: before the sum, or "
    "after it.",
    _FIXED: "You divide by a fixed number. dist.get_world_size() says how many ranks there are.",
    _ON_ONE: "Rank 0 has the mean and the others have the sum: all ranks run the same code, so all must divide.",
    _REDUCE: "Rank 0 has the mean and the others do not: dist.reduce brings the sum to one rank, dist.all_reduce to "
    "all.",
    _OWN_MEAN: (
        "Every rank took the mean of the elements of its own tensor. Compute the mean over ranks, element by element: "
        "the tensor keeps its shape, and ranks must talk to each other."
    ),
    _RETURNS: "dist.all_reduce returns None: it writes the sum into the tensor that you hand to it. Divide that "
    "tensor.",
    _ALONE: "A collective needs every rank: inside `if rank == 0` only one rank calls it, and the others never come.",
}

EXERCISE = Exercise(
    id="average",
    functions=("average",),
    driver=drive,
    oracle=means,
    least=least_traffic,
    find=find,
    blame=blaming(_SIGNS),
    visible=(mean_case(1, 4, (3,)), mean_case(2, 3, (5,)), mean_case(3, 2, (2, 3))),
    sweep=Sweep(
        tuple(mean_case(10 + size, size, (4,)) for size in (2, 3, 5, 8, 16)), "every rank holds the mean, nobody waits"
    ),
    par=Par(
        what="the mean of 100 MB",
        where="8 x A100, PCIe 4",  # not the eight H100 whose time the lesson asks to guess next
        program=average_100_mb,
        world_size=8,
        score=Score(time_ns=7_502_249, bytes_sent=100_000_000, peak_bytes=100_000_000),
        cluster={"gpu": "a100", "link": "pcie4"},
    ),
    hints=(
        "What does dist.all_reduce leave in the tensor: the sum or the mean? What is between the two?",
        "Sum over all ranks first, then divide once, on every rank, by the number of ranks; in place.",
        "dist.all_reduce(tensor), then tensor /= dist.get_world_size()",
    ),
    mistakes=MISTAKES,
    certain=frozenset({_RETURNS}),
)
