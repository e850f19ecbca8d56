"""Two operators: identity and all-reduce, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from labkit.checks import values
from labkit.checks.case import Case, Values
from labkit.checks.declared import Mistake, Way, declared, tensor_result
from labkit.checks.draws import normal, part_of
from labkit.checks.groups import group_of
from labkit.checks.hanging import stays_away
from labkit.checks.least_traffic import both_ways
from labkit.checks.structure import NOTHING, WRONG_SHAPE
from labkit.exercises.tensor_parallel.members import NO_GRADIENT, given, summed
from labkit.exercises.tensor_parallel.two_operators.driver import drive


def operators_case(
    name: str,
    seed: int,
    world_size: int,
    shape: Sequence[int],
    groups: list[list[int]] | None = None,
    turn: bool = False,
    nothing_from: int | None = None,
) -> Case:
    """Return a case of two_operators.

    Args:
        name: What is special about it.
        seed: Of the numbers.
        world_size: How many ranks.
        shape: Of x.
        groups: Ranks that share; None is all.
        turn: Whether transposed views are handed over.
        nothing_from: A rank whose gradient is zero.
    """
    inputs = [
        {
            "x": normal(part_of(seed, "rank", rank, "x"), *shape).double(),
            "gradient": normal(part_of(seed, "rank", rank, "gradient"), *shape).double() * (rank != nothing_from),
            "gradient_of_sum": normal(part_of(seed, "gradient of the sum", _number(groups, rank)), *shape).double(),
            "transposed": turn,
            **({} if groups is None else {"groups": groups}),
        }
        for rank in range(world_size)
    ]
    return Case(name, world_size, tuple(inputs))  # type: ignore[arg-type]


def _number(groups: list[list[int]] | None, rank: int) -> int:
    """Return which of the groups a rank is in; its ranks compute one loss."""
    return next((number for number, each in enumerate(groups or ()) if rank in each), 0)


def expected(case: Case) -> list[Values]:
    """Return what each rank gets."""
    found: list[Values] = []
    for rank, inputs in enumerate(case.inputs):
        x, gradient = values.tensor(inputs, "x"), values.tensor(inputs, "gradient")
        of_sum = values.tensor(inputs, "gradient_of_sum")
        total = summed(case, rank, "gradient")
        entered: Values = {"out": x, "gradient": total, "kept": x, "beside": gradient, "residual": total + gradient}
        left: Values = {"out": summed(case, rank, "x"), "gradient": of_sum, "kept": x, "beside": of_sum}
        left = {**left, "residual": 2 * of_sum}
        if "groups" in inputs:
            entered, left = {**entered, "between": total}, {**left, "between": of_sum}
        found.append({"enter": dict(entered), "leave": dict(left)})
    return found


def _own(key: str) -> Way:
    return lambda case, rank: given(case, rank, key)


def _sum(key: str) -> Way:
    return lambda case, rank: summed(case, rank, key)


def _mean(key: str) -> Way:
    return lambda case, rank: summed(case, rank, key) / len(group_of(case, rank))


def _share(key: str) -> Way:
    return lambda case, rank: given(case, rank, key) / len(group_of(case, rank))


def _of_first(key: str) -> Way:
    return lambda case, rank: given(case, group_of(case, rank)[0], key)


def _times_own(key: str) -> Way:
    return lambda case, rank: len(group_of(case, rank)) * given(case, rank, key)


def _of_others(key: str) -> Way:
    return lambda case, rank: summed(case, rank, key) - given(case, rank, key)


def _largest(key: str) -> Way:
    return lambda case, rank: torch.stack([given(case, each, key) for each in group_of(case, rank)]).amax(0)


def _of_all(key: str) -> Way:
    def way(case: Case, rank: int) -> Tensor | None:
        everybody = torch.stack([given(case, each, key) for each in range(case.world_size)])
        return everybody.sum(0) if len(group_of(case, rank)) < case.world_size else None

    return way


def _wherever_summed(way: Callable[[str], Way]) -> dict[str, Way]:
    """Return what x, and its gradient, are behind either operator where a sum was taken in this way."""
    x, gradient, of_sum = way("x"), way("gradient"), way("gradient_of_sum")
    return {"enter.out": x, "enter.gradient": gradient, "leave.out": x, "leave.gradient": of_sum}


EXERCISE = declared(
    id="two_operators",
    functions=("enter", "leave"),
    driver=drive,
    oracle=expected,
    looks=[
        result
        for name in ("enter", "leave")
        for result in (
            tensor_result(f"{name}.kept", f"x after {name}(x)", "x was changed"),
            tensor_result(f"{name}.out", f"{name}(x)"),
            tensor_result(f"{name}.gradient", f"the gradient of x behind {name}"),
            tensor_result(
                f"{name}.beside", f"the gradient of what is added to {name}(x)", "the gradient given was changed"
            ),
            tensor_result(f"{name}.residual", f"the gradient of x behind {name}(x) + x"),
            tensor_result(f"{name}.between", f"the gradient of x, where a {name} of all ranks came before backward,"),
        )
    ],
    mistakes=(
        Mistake("gradient not reduced",
                "The gradient that leaves `enter` is this rank's own. Every rank read x, so its gradient is the sum "
                "over all ranks: an all-reduce in backward.", {"enter.gradient": _own("gradient")}),
        Mistake("gradient times N",
                "The gradient behind `leave` is N times too large: it was reduced again, or multiplied. The sum is on "
                "every rank already, and so is the sum's gradient: hand it on as it is.",
                {"leave.gradient": _sum("gradient_of_sum")}),
        Mistake("gradient divided",
                "`leave` divides the gradient by the number of ranks. The result is one sum, and every rank has its "
                "whole gradient: hand it on as it is.",
                {"leave.gradient": _share("gradient_of_sum")}),
        Mistake("N times its own",
                "You multiply this rank's own numbers by the number of ranks. The others have other numbers: "
                "all-reduce them.", {"enter.gradient": _times_own("gradient"), "leave.out": _times_own("x")}),
        Mistake("own part left out", "The sum is that of the other ranks: this rank's own part belongs in it.",
                {"enter.gradient": _of_others("gradient"), "leave.out": _of_others("x")}),
        Mistake(WRONG_SHAPE,
                "`enter` and `leave` keep the shape of x: parts of one sum are added up, not put side by side."),
        Mistake("a gradient for each argument",
                "backward returns one gradient for each argument of forward: None for the group.",
                says=("incorrect number of gradients",)),
        Mistake("gradients in another order",
                "backward returned a gradient at the place of the group. Gradients stand in the order of forward's "
                "arguments: that of x first, then None for the group.",
                says=("returned a gradient different than None at position 2",)),
        Mistake("not summed", "`leave` returns this rank's own x: all-reduce it in forward.", {"leave.out": _own("x")}),
        Mistake("summed on one rank",
                "dist.reduce gives the sum to one rank. Here every rank of the group needs it: dist.all_reduce.",
                seen=lambda case, got, wire: any(call.kind == "reduce" for call in wire.collectives)),
        Mistake("one rank's x", "`leave` returns one rank's x on all ranks. It must return the sum: dist.all_reduce.",
                {"leave.out": _of_first("x")}),
        Mistake("maximum instead of sum",
                "You take the largest of all ranks' numbers. These are parts of one sum: dist.ReduceOp.SUM, which is "
                "what dist.all_reduce does if you name no operation.", _wherever_summed(_largest)),
        Mistake("enter sends x",
                "`enter` gives every rank one rank's x. It returns the x that it was given: in forward nothing "
                "travels.",
                {"enter.out": _of_first("x")}),
        Mistake("one group for all calls",
                "The gradient is that of the group of a *later* call. Two calls can have two groups, and backward "
                "comes after both: keep each call's group in its own ctx, not in the class or in a global.",
                {"enter.between": _of_all("gradient")}),
        Mistake("swapped", "`enter` adds up in forward. That is `leave`'s work; `enter` returns x.",
                {"enter.out": _sum("x")}),
        Mistake("mean instead of sum",
                "You divide by the number of ranks. These are parts of one sum, not copies to be averaged.",
                _wherever_summed(_mean)),
        Mistake("group ignored",
                "The sum runs over all ranks. Hand the group on: dist.all_reduce(..., group=group), in backward, too.",
                _wherever_summed(_of_all)),
        Mistake("residual summed, too",
                "Where a residual reads x beside `enter`, its gradient is added up, too; every rank has that one "
                "already. Only what comes back through `enter`'s result is a part: x itself must not be changed or "
                "hooked.", {"enter.residual": lambda case, rank: 2 * summed(case, rank, "gradient")}),
        Mistake("a rank stays away",
                "A rank does not take part in an all-reduce that the others are in, so they wait for ever. Every rank "
                "of the group must call it, whatever its numbers are, zeros, too.", seen=stays_away),
        Mistake("x was changed",
                "After the call x holds other numbers: dist.all_reduce works in place. Give it a copy."),
        Mistake("the gradient given was changed",
                "backward writes into the gradient that it is given: dist.all_reduce works in place. Others read that "
                "tensor, too, a residual beside you, say: give it a copy."),
        Mistake(NOTHING, NO_GRADIENT),
    ),
    least=lambda case: both_ways(range(case.world_size), values.tensor(case.inputs[0], "x").numel()),
    visible=(
        operators_case("2 ranks", 1201, 2, (3, 4)),
        operators_case("3 ranks, transposed views", 1202, 3, (4, 5), turn=True, nothing_from=2),
        operators_case("4 ranks, two groups of two", 1203, 4, (2, 3), [[0, 1], [2, 3]]),
    ),
    hints=(
        "Take a pencil and two ranks: y = (x @ A0) + (x @ A1). Which part of dy/dx does each rank know?",
        "A torch.autograd.Function has forward(ctx, x, group) and backward(ctx, gradient); ctx.group keeps the group. "
        "backward returns one gradient for each argument: None for the group.",
        "enter: forward returns x.view_as(x), backward all-reduces a contiguous clone of the gradient. leave: forward "
        "all-reduces a contiguous clone of x, backward returns the gradient.",
    ),
)  # fmt: skip
