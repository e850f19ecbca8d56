"""A layer split over ranks: Megatron's f and g, and an MLP made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear

from labkit.checks import draws
from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.compare import difference
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.pipeline import least_traffic
from labkit.exercises.pipeline.split_layer.driver import drive
from labkit.words import join, plural

_ALL_REDUCES = 4  # f backward, g forward, and both in the MLP


def layer_case(
    name: str, seed: int, widths: Sequence[int], group: Sequence[int] | None = None, world_size: int | None = None
) -> Case:
    """Return a case in which rank r of the group holds widths[r] of the hidden units.

    Args:
        name: What is special about it.
        seed: Draws the numbers.
        widths: Hidden units of each rank.
        group: Global ranks that take part, in a world of `world_size`; None is everybody.
        world_size: Ranks of the world.
    """

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    draw = draws.generator(seed)
    x, bias, weight = normal(3, 5), normal(4), normal(3, 4)
    inputs: list[Values] = []
    ranks = list(range(len(widths))) if group is None else list(group)
    for rank, width in zip(ranks, widths, strict=True):
        draw = draws.generator(seed, "rank", rank)
        mlp: dict[str, Value] = {
            "x": x,
            "first_weight": normal(width, 5),
            "first_bias": normal(width),
            "second_weight": normal(4, width),
            "bias": bias,
            "weight": weight,
        }
        inputs.append({"x": normal(2, 3), "weight": normal(2, 3), "mlp": mlp})
    if group is not None:
        by_rank = dict(zip(ranks, inputs, strict=True))
        inputs = [{**by_rank.get(rank, {}), "group": list(ranks)} for rank in range(world_size or len(ranks))]
    return Case(name, len(inputs), tuple(inputs), {"ranks": cast(Value, ranks)})


def expected(case: Case, mlp: Callable[..., Tensor] | None = None) -> list[Values]:
    """Return what each rank must have (the oracle): the MLP is computed whole, in one process."""
    ranks = cast(list[int], case.about["ranks"])
    parts = [cast(dict[str, Tensor], case.inputs[rank]["mlp"]) for rank in ranks]
    leaves = {
        name: torch.cat([part[name] for part in parts], dim=1 if name == "second_weight" else 0).requires_grad_()
        for name in ("first_weight", "first_bias", "second_weight")
    }
    x, bias = parts[0]["x"].clone().requires_grad_(), parts[0]["bias"].clone().requires_grad_()
    out = linear(gelu(linear(x, leaves["first_weight"], leaves["first_bias"])), leaves["second_weight"], bias)
    (out * parts[0]["weight"]).sum().backward()  # type: ignore[no-untyped-call]
    weights = sum(cast(Tensor, case.inputs[rank]["weight"]) for rank in ranks)
    total = sum(cast(Tensor, case.inputs[rank]["x"]) for rank in ranks)
    found: list[Values] = [{"member": False} for _ in range(case.world_size)]
    start = 0
    for rank, part in zip(ranks, parts, strict=True):
        own = case.inputs[rank]
        end = start + len(part["first_weight"])
        found[rank] = {
            "copy_to_ranks": own["x"], "copy_to_ranks gradient": cast(Value, weights), "copy_to_ranks x": own["x"],
            "copy_to_ranks weight": own["weight"], "sum_over_ranks": cast(Value, total),
            "sum_over_ranks gradient": own["weight"], "sum_over_ranks x": own["x"],
            "sum_over_ranks weight": own["weight"], "split_mlp": out.detach(), "gradient of x": x.grad,
            "gradient of columns.weight": cast(Tensor, leaves["first_weight"].grad)[start:end],
            "gradient of columns.bias": cast(Tensor, leaves["first_bias"].grad)[start:end],
            "gradient of rows.weight": cast(Tensor, leaves["second_weight"].grad)[:, start:end],
            "gradient of bias": bias.grad,
        }  # fmt: skip
        start = end
    return found


_CHANGED = {
    "copy_to_ranks x": "copy_to_ranks changed the tensor it was given",
    "sum_over_ranks x": "sum_over_ranks changed the tensor it was given: dist.all_reduce works in place; copy it",
    "copy_to_ranks weight": "copy_to_ranks changed the gradient it was given: all-reduce a copy of it",
    "sum_over_ranks weight": "sum_over_ranks changed the gradient it was given",
}


def _first_wrong(case: Case, got: tuple[Values, ...]) -> tuple[int, str, Tensor, Any] | None:
    for rank, right in enumerate(expected(case)):
        for name, wanted in right.items():
            if isinstance(wanted, Tensor) and _differs(got[rank].get(name), wanted):
                return rank, name, wanted, got[rank].get(name)
    return None


def _differs(found: object, wanted: Tensor) -> bool:
    allowed = torch.full(wanted.shape, 1e-9 * (1 + float(wanted.abs().max())), dtype=torch.float64)
    return difference(cast(Value, found), wanted, allowed) is not None


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether outputs and gradients are those of the whole layer, with as many all-reduces as are needed."""
    assert isinstance(got, tuple)
    for values in got:
        if "problem" in values:
            return Verdict(False, message=str(values["problem"]))
    wrong = _first_wrong(case, got)
    if wrong is not None:
        rank, name, wanted, found = wrong
        if name in _CHANGED:
            return Verdict(False, message=f"Rank {rank}: {_CHANGED[name]}.", rank=rank)
        allowed = torch.full(wanted.shape, 1e-9 * (1 + float(wanted.abs().max())), dtype=torch.float64)
        apart = difference(found, wanted, allowed)
        assert apart is not None
        what = name if name.startswith("gradient") else f"the result of {name}" if " " not in name else name
        where = f"element {apart.index}: " if apart.index >= 0 else f"{apart.what}: "
        return Verdict(
            False,
            message=f"Rank {rank}, {what} is wrong.",
            expected=where + apart.expected,
            got=where + apart.got,
            rank=rank,
        )
    kinds = {call.kind for call in wire.collectives}
    if wire.messages or kinds - {"all_reduce"}:
        called = join(sorted(kinds - {"all_reduce"})) if kinds - {"all_reduce"} else "point-to-point messages"
        return Verdict(False, message=f"f and g need dist.all_reduce only; there were {called}.")
    for rank in cast(list[int], case.about["ranks"]):
        count = sum(call.rank == rank for call in wire.collectives)
        if count != _ALL_REDUCES:
            return Verdict(
                False,
                message=f"Rank {rank} called all_reduce {count} times; needed are 1 in the backward of "
                "copy_to_ranks, 1 in the forward of sum_over_ranks, and both again in split_mlp.",
                expected=plural(_ALL_REDUCES, "all_reduce"),
                got=str(count),
                rank=rank,
            )
    return Verdict(True)


def _wrong_name(*names: str) -> Callable[[Case, Got, Wire], bool]:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        wrong = _first_wrong(case, got) if isinstance(got, tuple) and "problem" not in got[-1] else None
        return wrong is not None and wrong[1] in names

    return seen


def _is(name: str, other: Callable[[Case, int, Values], Tensor | None]) -> Callable[[Case, Got, Wire], bool]:
    """Return whether a value is wrong and, on all ranks, what `other` gives."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple):
            return False
        right = expected(case)
        ranks = cast(list[int], case.about["ranks"])
        pairs = [
            (got[rank].get(name), cast(Tensor, right[rank][name]), other(case, rank, right[rank])) for rank in ranks
        ]
        if any(wrong is None for *_, wrong in pairs) or not any(_differs(came, good) for came, good, _ in pairs):
            return False
        return all(not _differs(came, cast(Tensor, wrong)) for came, _, wrong in pairs)

    return seen


def _count(case: Case) -> int:
    return len(cast(list[int], case.about["ranks"]))


EXERCISE = judged(
    id="split_layer",
    functions=("copy_to_ranks", "sum_over_ranks", "split_mlp"),
    driver=drive,
    oracle=expected,
    least=least_traffic.of_split_layer,
    judge=judge,
    visible=(
        layer_case("3 ranks with 2, 3 and 1 hidden units", 51, (2, 3, 1)),
        layer_case("4 ranks, of which 1, 2 and 3 take part", 52, (1, 2, 2), group=(1, 2, 3), world_size=4),
    ),
    hints=(
        "Which of the two does nothing on the way there, and which on the way back? What does every rank have to know "
        "about the others in each case?",
        "f: forward returns x, backward all-reduces a copy of the gradient. g: forward all-reduces a copy of x, "
        "backward returns the gradient. The MLP: gelu(columns(f(x))), then g(rows(...)), then the bias, once.",
        "total = gradient.clone(memory_format=torch.contiguous_format); dist.all_reduce(total, group=group); return "
        "total. And: sum_over_ranks(rows(gelu(columns(copy_to_ranks(x, group)))), group) + bias.",
    ),
    mistakes=(
        Mistake(
            "no gradient",
            "A gradient is missing: an all_reduce on a plain tensor has no backward. Write an autograd.Function and "
            "call its apply.",
            lambda case, got, wire: (
                isinstance(got, tuple)
                and any(
                    values.get(name, 0) is None
                    for values in got
                    for name in values
                    if "gradient" in name and "problem" not in values
                )
            ),
        ),
        Mistake(
            "works in place on the caller's tensor",
            "dist.all_reduce changes the tensor it is given: hand it a clone.",
            _wrong_name("copy_to_ranks x", "sum_over_ranks x", "copy_to_ranks weight", "sum_over_ranks weight"),
        ),
        Mistake(
            "f and g swapped",
            "copy_to_ranks sums in forward: that is g. f does nothing forward, and sums the gradients in backward.",
            _is("copy_to_ranks", lambda case, rank, right: cast(Tensor, right["sum_over_ranks"])),
        ),
        Mistake(
            "f does not sum the gradients",
            "In backward copy_to_ranks passed this rank's gradient on as it is: it must be summed over the ranks.",
            _is("copy_to_ranks gradient", lambda case, rank, right: cast(Tensor, right["copy_to_ranks weight"])),
        ),
        Mistake(
            "g sums the gradients again",
            "In backward sum_over_ranks summed the gradients: every rank has the whole gradient already; pass it on "
            "as it is.",
            _is("sum_over_ranks gradient", lambda case, rank, right: cast(Tensor, right["copy_to_ranks gradient"])),
        ),
        Mistake(
            "mean instead of sum",
            "sum_over_ranks gives the mean: the parts of a product are added, not averaged.",
            _is("sum_over_ranks", lambda case, rank, right: cast(Tensor, right["sum_over_ranks"]) / _count(case)),
        ),
        Mistake(
            "the bias is added on every rank",
            "The second bias was added before the sum, so once for each rank: add it after sum_over_ranks.",
            _is(
                "split_mlp",
                lambda case, rank, right: (
                    cast(Tensor, right["split_mlp"])
                    + (_count(case) - 1) * cast(dict[str, Tensor], case.inputs[rank]["mlp"])["bias"]
                ),
            ),
        ),
        Mistake(
            "f forgotten in the MLP",
            "The MLP's result is right and the gradient of x is not: x goes into every rank's columns, so it must pass "
            "copy_to_ranks first.",
            _wrong_name("gradient of x"),
        ),
        Mistake(
            "all ranks of the world",
            "The other ranks do not take part: hand group=group to dist.all_reduce.",
            lambda case, got, wire: "take part" in case.name and not isinstance(got, tuple),
        ),
        Mistake(
            "more all-reduces than needed",
            "All numbers are right, with more all-reduces than f and g need: one each.",
            lambda case, got, wire: (
                isinstance(got, tuple) and _first_wrong(case, got) is None and not judge(case, got, wire).passed
            ),
        ),
    ),
)
