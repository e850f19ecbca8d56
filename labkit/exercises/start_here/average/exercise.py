"""The mean over ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.compare import difference, listing
from labkit.checks.exercise import Functions, Sweep
from labkit.checks.judged import Mistake, judged
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.par import Par, Score
from labkit.checks.verdict import Verdict
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
    return torch.stack([cast(Tensor, inputs["tensor"]) for inputs in case.inputs]).double()


def means(case: Case) -> list[Values]:
    """Return the mean over ranks for every rank (the oracle)."""
    return [{"tensor": given(case).mean(0).float()} for _ in case.inputs]


def least_traffic(case: Case) -> dict[int, Bytes]:
    """Return what must travel: each rank's tensor into all means, and the others' into its own."""
    return both_ways(range(case.world_size), cast(Tensor, case.inputs[0]["tensor"]).numel())


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether every rank's tensor holds the mean over all ranks."""
    assert isinstance(got, tuple)
    expected = cast(Tensor, means(case)[0]["tensor"])
    slack = 1e-5 * given(case).abs().max()
    found = {rank: difference(values.get("tensor"), expected, slack) for rank, values in enumerate(got)}
    wrong = {rank: first for rank, first in found.items() if first is not None}
    if not wrong:
        return Verdict(True)
    rank, first = next(iter(wrong.items()))
    came = got[rank].get("tensor")
    return Verdict(
        False,
        message=f"{are_wrong(wrong, case.world_size)}. Rank {rank} has {first.got}, expected {first.expected}.",
        expected=f"rank {rank}: {listing(expected.reshape(-1), first.index)}",
        got=f"rank {rank}: {listing(came.reshape(-1), first.index) if isinstance(came, Tensor) else first.got}",
        rank=rank,
    )


def average_100_mb(functions: Functions) -> None:
    """Average 100 MB once: what par is measured with."""
    functions["average"](torch.empty(25_000_000, device="meta"))


def _is(
    make: Callable[[Tensor, int], Tensor], *, ranks: Callable[[int], bool] = lambda rank: True
) -> Callable[[Case, Got, Wire], bool]:
    """Return whether the tensors of these ranks are what a wrong rule makes of what was given."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple):
            return False
        stack = given(case)
        return all(
            isinstance(values.get("tensor"), Tensor)
            and cast(Tensor, values["tensor"]).shape == stack[0].shape
            and torch.allclose(cast(Tensor, values["tensor"]).double(), make(stack, rank), rtol=1e-4, atol=1e-4)
            for rank, values in enumerate(got)
            if ranks(rank)
        )

    return seen


_is_sum = _is(lambda stack, rank: stack.sum(0))
_others_have_sum = _is(lambda stack, rank: stack.sum(0), ranks=lambda rank: rank > 0)
_rank_0_is_right = _is(lambda stack, rank: stack.mean(0), ranks=lambda rank: rank == 0)


def _divided_by(count: int) -> Callable[[Case, Got, Wire], bool]:
    return _is(lambda stack, rank: stack.sum(0) / count)


def _constant(case: Case, got: Got, wire: Wire) -> bool:
    return any(_divided_by(count)(case, got, wire) for count in (2, 3, 4, 8) if count != case.world_size)


def _took_what_all_reduce_returns(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, Failure) and got.error in ("TypeError", "AttributeError") and "NoneType" in got.message


def _somebody_did_not_call(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, Failure) and got.kind in ("deadlock", "timeout", "died", "exception")


EXERCISE = judged(
    id="average",
    functions=("average",),
    driver=drive,
    oracle=means,
    least=least_traffic,
    judge=judge,
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
    mistakes=(
        Mistake(
            "not in place",
            "Every rank's tensor is as it was. The mean must stand in the tensor that was handed in: change it, do not "
            "return another.",
            _is(lambda stack, rank: stack[rank]),
        ),
        Mistake(
            "sum called mean",
            "Every rank holds the sum: all_reduce adds and does not divide. If you did divide, the quotient went to a "
            "new tensor: tensor = tensor / n only gives a name to it, tensor /= n changes what was handed in.",
            _is_sum,
        ),
        Mistake(
            "divided twice",
            "Every rank holds the mean divided by the number of ranks once more. Divide once: before the sum, or "
            "after it.",
            _is(lambda stack, rank: stack.mean(0) / len(stack)),
        ),
        Mistake(
            "number of ranks written into the code",
            "It is divided by a fixed number. How many ranks there are is what dist.get_world_size() says.",
            _constant,
        ),
        Mistake(
            "divided on rank 0 only",
            "Rank 0 has the mean and the others have the sum: all ranks run the same code, so all must divide.",
            lambda case, got, wire: _rank_0_is_right(case, got, wire) and _others_have_sum(case, got, wire),
        ),
        Mistake(
            "only rank 0 has it",
            "Rank 0 has the mean and the others do not: dist.reduce brings the sum to one rank, dist.all_reduce to "
            "all.",
            _rank_0_is_right,
        ),
        Mistake(
            "mean of the elements",
            "Every rank took the mean of the elements of its own tensor. Asked for is the mean over ranks, element by "
            "element: the tensor keeps its shape, and ranks must talk to each other.",
            _is(lambda stack, rank: stack[rank].mean().expand_as(stack[rank])),
        ),
        Mistake(
            "what all_reduce returns",
            "dist.all_reduce returns None: it writes the sum into the tensor that you hand to it. Divide that tensor.",
            _took_what_all_reduce_returns,
            certain=True,
        ),
        Mistake(
            "not every rank takes part",
            "A collective needs every rank: one that stands behind `if rank == 0` is called by one rank, and the "
            "others never come.",
            _somebody_did_not_call,
        ),
    ),
)
