"""A linear layer whose backward puts the weights' half off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks import draws
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.parting import parting
from labkit.checks.structure import Each, OneOf
from labkit.checks.values import texts
from labkit.checks.wire import Wire
from labkit.exercises.schedules.linear_later.driver import drive
from labkit.exercises.stages.training import gradient_difference


def linear_case(name: str, seed: int, shape: Sequence[int], bias: bool = True, frozen: Sequence[str] = ()) -> Case:
    """Return a case of one layer: x has this shape, with its last dimension what enters."""
    draw = draws.generator(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=draw, dtype=torch.float64)

    out = shape[-1] + 2
    given: dict[str, Value] = {
        "x": normal(*shape), "weight": normal(out, shape[-1]), "bias": normal(out) if bias else None,
        "gradient": normal(*shape[:-1], out), "frozen": list(frozen),
    }  # fmt: skip
    return Case(name, 1, (given,))


def expected(case: Case) -> list[Values]:
    """Return output and gradients of a linear layer that went backward twice (the oracle)."""
    given, frozen = case.inputs[0], texts(case.inputs[0], "frozen")
    leaves = {
        name: tensor.clone().requires_grad_(name not in frozen)
        for name in ("x", "weight", "bias")
        if isinstance(tensor := given[name], Tensor)
    }
    for _ in range(2):
        out = nn.functional.linear(leaves["x"], leaves["weight"], leaves.get("bias"))
        torch.autograd.backward(out, cast(Tensor, given["gradient"]))
    found: dict[str, Value] = {"out": out.detach()}
    return [found | {f"gradient of {name}": leaf.grad for name, leaf in leaves.items()}]


def structure(case: Case) -> list[Any]:
    """Return what comes: the oracle's, and what was computed in backward and put off; or the problem."""
    return [OneOf(({**expected(case)[0], "at_once": Each(str), "put_off": int}, {"problem": str}))]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield where the layer is wrong, or did not put off what it should."""
    came = got[0]
    if "problem" in came:
        yield Finding("", str(came["problem"]))
        return
    if came["at_once"]:
        yield Finding(_AT_ONCE, f"The gradient of {came['at_once']} was computed in backward already; put it off.")
    for name, right in expected(case)[0].items():
        mine, wanted = cast("Tensor | None", came[name]), cast("Tensor | None", right)
        if text := gradient_difference(mine, wanted):
            what = "The output" if name == "out" else f"After two backwards and all of later the {name}"
            # both backwards bring the same gradient
            once = mine is not None and name != "gradient of x" and gradient_difference(2 * mine, wanted) is None
            name = _LAST if once else _NOTHING_FOR_X if name == "gradient of x" and mine is None else ""
            how = "" if name else parting({0: (mine, wanted)}, [0])
            yield Finding(name, f"{what} is wrong: {text[0]}.{how}", text[1], text[2])
    if came["put_off"] != 2:
        yield Finding("", f"Two backwards put {came['put_off']} functions into later; each should put one.")


def _rows_fail(case: Case, got: Got, wire: Wire) -> bool:
    shapes = ("mat1 and mat2", "must match", "2D", "dim", "size")
    return isinstance(got, Failure) and "rows" in case.name and any(words in got.message for words in shapes)


_AT_ONCE, _LAST, _NOTHING_FOR_X = "weights' gradients at once", "overwritten, not added", "no gradient for x"

EXERCISE = declared(
    id="linear_later",
    functions=("linear_later",),
    driver=drive,
    oracle=expected,
    structure=structure,
    looks=(find,),
    visible=(
        linear_case("a layer by itself", 141, (5, 4)),
        linear_case(
            "a layer, samples of 2 rows, frozen weight; no bias", 142, (3, 2, 6), bias=False, frozen=["weight"]
        ),
        linear_case("a layer, samples of 2 rows", 143, (3, 2, 4)),
    ),
    distributed=False,
    hints=(
        "Which part of a linear layer's backward does no other rank wait for? Where do you keep what it needs?",
        "An autograd.Function whose backward returns gradient @ weight for x and None for the others, and appends a "
        "function to later that adds gradient.T @ x to weight.grad and the sum over the rows to bias.grad.",
        "rows = gradient.reshape(-1, gradient.shape[-1]); found = rows.T @ x.reshape(-1, x.shape[-1]); weight.grad = "
        "found if weight.grad is None else weight.grad + found. In backward: later.append(rest); return gradient @ "
        "weight, None, None.",
    ),
    mistakes=(
        Mistake(_AT_ONCE,
                "The weight's gradient is computed in backward already: let backward return None for weight and bias, "
                "and append a function to later that adds them to .grad when it is called."),
        Mistake(_LAST,
                "The weight's gradient is only that of the last backward: add to .grad instead of replacing it."),
        Mistake(_NOTHING_FOR_X, "backward returns nothing for x: the stage before waits for gradient @ weight."),
        Mistake("rows not joined",
                "With samples of several rows a gradient has three dimensions: reshape it and x to (rows, features) "
                "first.", seen=_rows_fail, certain=True),
    ),
)  # fmt: skip
