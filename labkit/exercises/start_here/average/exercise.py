"""The mean over ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.compare import near
from labkit.checks.declared import Mistake, Result, Way, declared
from labkit.checks.exercise import Functions, Sweep
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.par import Par, Score
from labkit.checks.values import tensor
from labkit.checks.wire import Wire
from labkit.exercises.start_here.average.driver import drive


def mean_case(seed: int, world_size: int, shape: Sequence[int], *, wide: bool = False) -> Case:
    """Return a case of average: whole numbers, different on every rank; float32 does not keep all bits of wide ones."""
    tensors = [
        torch.randint(1, 1000, tuple(shape), generator=draws.generator(seed, "rank", rank)).float()
        for rank in range(world_size)
    ]
    tensors = [tensor.double() + 2**25 for tensor in tensors] if wide else tensors
    name = f"{world_size} rank{'s' if world_size > 1 else ''}, {' x '.join(map(str, shape))} elements"
    return Case(name, world_size, tuple({"tensor": tensor} for tensor in tensors))


def given(case: Case) -> Tensor:
    """Return what all ranks were given, stacked, in float64."""
    return torch.stack([tensor(inputs, "tensor") for inputs in case.inputs]).double()


def _typed(case: Case, result: Tensor) -> Tensor:
    return result.to(tensor(case.inputs[0], "tensor").dtype)


def means(case: Case) -> list[Values]:
    """Return the mean over ranks for every rank (the oracle)."""
    return [{"tensor": _typed(case, given(case).mean(0))} for _ in case.inputs]


def least_traffic(case: Case) -> dict[int, Bytes]:
    """Return what must travel: each rank's tensor into all means, and the others' into its own."""
    return both_ways(range(case.world_size), tensor(case.inputs[0], "tensor").numel())


def average_100_mb(functions: Functions) -> None:
    """Average 100 MB once: what par is measured with."""
    functions["average"](torch.empty(25_000_000, device="meta"))


def _of_stack(rule: Callable[[Tensor, int], Tensor]) -> Way:
    """Return what a wrong rule makes, on a rank, of what all were given, stacked."""
    return lambda case, rank: _typed(case, rule(given(case), rank))


def _two_by_two(tensors: list[Tensor]) -> Tensor:
    mean = tensors[0]
    for each in tensors[1:]:
        mean = (mean + each) / 2
    return mean


def _divided_too_early(last: int) -> Way:
    """Return what ranks hold that divide before they wait, where this one is the last to call all_reduce: the others
    have divided their own numbers by then."""

    def way(case: Case, rank: int) -> Tensor | None:
        stack = given(case)
        if last >= len(stack):
            return None
        parts = stack / len(stack)
        parts[last] = stack[last]
        return _typed(case, parts.sum(0))

    return way


def _divided_by(count: int) -> Way:
    return lambda case, rank: _typed(case, given(case).sum(0) / count) if count != case.world_size else None


def _only_rank_0_is_right(case: Case, got: Got, wire: Wire) -> bool:
    return not isinstance(got, Failure) and _same(tensor(got[0], "tensor"), tensor(means(case)[0], "tensor"))


def _all_hold_the_sum(case: Case, got: Got, wire: Wire) -> bool:
    return not isinstance(got, Failure) and all(
        _same(tensor(each, "tensor"), _typed(case, given(case).sum(0))) for each in got
    )


def _divides_none(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, Failure) and got.error in ("TypeError", "AttributeError") and "NoneType" in got.message


def _failed(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, Failure) and (got.kind in (*HANGS, "died") or "onnection" in got.message)


def _right_in_float32(case: Case, got: Got, wire: Wire) -> bool:
    wide = tensor(case.inputs[0], "tensor").dtype == torch.float64
    right = given(case).mean(0)
    return wide and not isinstance(got, Failure) and all(near(tensor(each, "tensor"), right, 1e-6) for each in got)


def _calls_differ(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, Failure) and "must call the same collectives" in got.message


def _same(mine: Tensor, right: Tensor) -> bool:
    return near(mine, right, 1e-5 if right.dtype == torch.float32 else 1e-12)


EXERCISE = declared(
    id="average",
    functions=("average",),
    driver=drive,
    oracle=means,
    least=least_traffic,
    looks=(Result("tensor", "{ranks}. Rank {rank} has {has}, expected {needs}.", same=_same),),
    visible=(mean_case(1, 4, (6,)), mean_case(2, 3, (5,)), mean_case(3, 2, (2, 3), wide=True)),
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
        Mistake("not in place",
                "The memory of the tensor that was passed in did not change. The mean must end up there: tensor /= n "
                "or tensor.copy_(mean). A mean that is returned, or gets the name tensor, or is put into tensor.data, "
                "lies elsewhere.", {"tensor": _of_stack(lambda stack, rank: stack[rank])}),
        Mistake("sum instead of mean",
                "Every rank holds the sum: all_reduce adds and does not divide. If you did divide, the quotient is "
                "another tensor: tensor / n and tensor.div(n) leave the tensor that you were given as it is, and "
                "tensor /= n changes it.", seen=_all_hold_the_sum),
        Mistake("divided by the rank",
                "Each rank divided by its own number plus 1. All divide by the same: the number of ranks, "
                "dist.get_world_size().",
                {"tensor": _of_stack(lambda stack, rank: stack.sum(0) / (rank + 1))}),
        Mistake("multiplied, not divided",
                "Every rank holds the sum times the number of ranks: divide by it.",
                {"tensor": _of_stack(lambda stack, rank: stack.sum(0) * len(stack))}),
        Mistake("divided before the sum was there",
                "The tensor changed while the all_reduce was still under way: with async_op=True the call returns at "
                "once. Wait for what it returned, work.wait(), and divide then.",
                {"tensor": tuple(map(_divided_too_early, range(8)))}, everywhere=True),
        Mistake("divided, never added up",
                "Every rank holds its own numbers, divided by the number of ranks: the others' were never added to "
                "this tensor. (Were they added to a copy, or nobody waited for them?)",
                {"tensor": _of_stack(lambda stack, rank: stack[rank] / len(stack))}, everywhere=True),
        Mistake("one rank's numbers for all",
                "Every rank holds rank 0's own numbers: broadcast writes them over those of the others, and adds "
                "nothing. The mean needs all ranks' numbers: dist.all_reduce adds them up.",
                {"tensor": (_of_stack(lambda stack, rank: stack[0] / len(stack)),
                            _of_stack(lambda stack, rank: stack[0]))}, everywhere=True),
        Mistake("one tensor in all places",
                "Every rank holds the last rank's numbers: [tensor] * n is one tensor, n times, and what is gathered "
                "last stays in it. Make a new one for each place: [torch.empty_like(tensor) for _ in range(n)].",
                {"tensor": _of_stack(lambda stack, rank: stack[-1])}, everywhere=True),
        Mistake("rounded",
                "The mean of whole numbers need not be one: do not round, and divide with /= and not with //=.",
                {"tensor": (_of_stack(lambda stack, rank: stack.mean(0).round()),
                            _of_stack(lambda stack, rank: stack.mean(0).floor()))}),
        Mistake("in float32",
                "These are the means but for their last digits: they went through float32, which keeps 24 bits of a "
                "number. Add up and divide in the tensor's own type, without float().",
                seen=_right_in_float32),
        Mistake("the median",
                "This is the median, the number in the middle. The mean is the sum divided by how many there are.",
                {"tensor": _of_stack(lambda stack, rank: stack.median(0).values)}),
        Mistake("its own left out",
                "Every rank has the mean of the others: its own numbers are missing. The mean is over all ranks, this "
                "one too.",
                {"tensor": (_of_stack(lambda stack, rank: (stack.sum(0) - stack[rank]) / max(1, len(stack) - 1)),
                            _of_stack(lambda stack, rank: (stack.sum(0) - stack[rank]) / len(stack)))}),
        Mistake("its own counted twice",
                "Every rank's own numbers are in its sum twice: they are among those that are gathered.",
                {"tensor": _of_stack(lambda stack, rank: (stack.sum(0) + stack[rank]) / len(stack))}),
        Mistake("the mean added to its own",
                "Every rank holds its own numbers plus the mean. Replace the tensor: tensor.copy_(mean) puts the mean "
                "in its place, tensor += mean adds it to what is there.",
                {"tensor": _of_stack(lambda stack, rank: stack[rank] + stack.mean(0))}),
        Mistake("averaged two by two",
                "You take the mean of two, again and again, or of two ranks alone: then ranks do not count alike. Add "
                "up all ranks' numbers, and divide once.",
                {"tensor": (_of_stack(lambda stack, rank: _two_by_two([stack[rank], *stack])),
                            _of_stack(lambda stack, rank: _two_by_two(list(stack))),
                            _of_stack(lambda stack, rank: (stack[rank] + stack[rank - 1]) / 2),
                            _of_stack(lambda stack, rank: (stack[rank] + stack[(rank + 1) % len(stack)]) / 2))}),
        Mistake("divided by the number of elements",
                "You divide by the number of elements. Each element is the sum of as many numbers as there are ranks: "
                "divide by dist.get_world_size().",
                {"tensor": _of_stack(lambda stack, rank: stack.sum(0) / stack[rank].numel())}),
        Mistake("one rank too few",
                "The sum was divided by one less than the number of ranks. dist.get_world_size() is the number of all "
                "ranks, rank 0 and this one too: divide by it.",
                {"tensor": _of_stack(lambda stack, rank: stack.sum(0) / max(1, len(stack) - 1))}),
        Mistake("divided twice",
                "Every rank holds the mean divided by the number of ranks once more. Divide once: before the sum, or "
                "after it.", {"tensor": _of_stack(lambda stack, rank: stack.mean(0) / len(stack))}),
        Mistake("number of ranks written into the code",
                "You divide by a fixed number. dist.get_world_size() says how many ranks there are.",
                {"tensor": tuple(map(_divided_by, (2, 3, 4, 8)))}),
        Mistake("divided on rank 0 only",
                "Rank 0 has the mean and the others have the sum: all ranks run the same code, so all must divide.",
                {"tensor": _of_stack(lambda stack, rank: stack.sum(0) if rank else stack.mean(0))}),
        Mistake("mean of the elements",
                "Every rank took the mean of the elements of its own tensor. Compute the mean over ranks, element by "
                "element: the tensor keeps its shape, and ranks must talk to each other.",
                {"tensor": _of_stack(lambda stack, rank: stack[rank].mean().expand_as(stack[rank]))}),
        Mistake("mean over elements too",
                "All elements have become one number: the mean was taken over ranks and over elements. Take it over "
                "ranks alone: divide each element of the sum by the number of ranks.",
                {"tensor": (_of_stack(lambda stack, rank: stack.sum(0).mean().expand_as(stack[rank])),
                            _of_stack(lambda stack, rank: stack.mean().expand_as(stack[rank])))}),
        Mistake("only rank 0 has it",
                "Rank 0 has the mean and the others do not: dist.reduce brings the sum to one rank, dist.all_reduce "
                "to all.", seen=_only_rank_0_is_right),
        Mistake("what all_reduce returns",
                "dist.all_reduce returns None: it writes the sum into the tensor that you hand to it. Divide that "
                "tensor.", seen=_divides_none, certain=True),
        Mistake("ranks call different things",
                "The ranks do not call the same: who is src or dst, and how large the tensor is, must be the same on "
                "all ranks that take part in a collective.", seen=_calls_differ),
        Mistake("not every rank takes part",
                "A collective needs every rank: inside `if rank == 0` only one rank calls it, and the others never "
                "come.", seen=_failed),
    ),
)  # fmt: skip
