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
from labkit.checks.values import integer, texts
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
    right = expected(case)[0]
    frozen = {f"gradient of {name}": OneOf((None, torch.Tensor)) for name in texts(case.inputs[0], "frozen")}
    counts = {"put_off": int, "in_forward": int, "num_products": int, "x_again": bool}
    return [OneOf(({**right, **frozen, **counts, "at_once": Each(str), "x_later": bool}, {"problem": str}))]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield where the layer is wrong, or did not put off what it should."""
    came = got[0]
    if "problem" in came:
        yield Finding("", str(came["problem"]))
        return
    if came["at_once"]:
        yield Finding(_AT_ONCE, f"The gradient of {came['at_once']} was computed in backward already; put it off.")
    products, in_forward = integer(came, "num_products"), integer(came, "in_forward")
    if products > 1:
        text = f"One backward computed {products} products of matrices; one is enough for the gradient of x."
        yield Finding(_COMPUTED, text, "1", f"{products}")
    if in_forward:
        yield Finding(_IN_FORWARD, f"Two forwards put {in_forward} functions into later.", "0", f"{in_forward}")
    if came["x_later"]:
        yield Finding(_NOTHING_FOR_X, "After two backwards x has no gradient.")
    if came["put_off"] != 2:
        said = f"After two backwards there are {came['put_off']} functions in later."
        yield Finding(_NUMBER, said, "2", f"{came['put_off']}")
    if came["x_again"]:
        yield Finding(_X_AGAIN, "The functions in later have changed the gradient of x.")
    for name, right in expected(case)[0].items():
        mine, wanted = cast("Tensor | None", came[name]), cast("Tensor | None", right)
        if wanted is None and mine is not None:
            yield Finding(_FROZEN, f"The {name} is a tensor, but it is frozen.", "None", "a tensor")
        elif apart := gradient_difference(mine, wanted):
            what = "The output" if name == "out" else f"After two backwards and all of later the {name}"
            # both backwards bring the same gradient
            once = mine is not None and name != "gradient of x" and gradient_difference(2 * mine, wanted) is None
            mistake = _LAST if once else _NO_BIAS if name == "out" and _is_without_bias(case, mine) else ""
            how = "" if mistake else parting({0: (mine, wanted)}, [0])
            yield Finding(mistake, f"{what} is wrong: {apart[0]}.{how}", apart[1], apart[2])


def _is_without_bias(case: Case, out: Tensor | None) -> bool:
    given = case.inputs[0]
    return gradient_difference(out, cast(Tensor, given["x"]) @ cast(Tensor, given["weight"]).T) is None


def _rows_fail(case: Case, got: Got, wire: Wire) -> bool:
    shapes = ("mat1 and mat2", "must match", "2D", "dim", "size")
    return isinstance(got, Failure) and "rows" in case.name and any(words in got.message for words in shapes)


def _x_needs_none(case: Case, got: Got, wire: Wire) -> bool:
    alone = "x" in texts(case.inputs[0], "frozen")
    return alone and isinstance(got, Failure) and "does not require grad" in got.message


_X_AGAIN = "the gradient of x again"
_AT_ONCE, _LAST, _NOTHING_FOR_X = "weights' gradients at once", "overwritten, not added", "no gradient for x"
_COMPUTED, _IN_FORWARD, _FROZEN, _NO_BIAS, _NUMBER = (
    "computed at once, added later", "put off in forward", "a gradient for a frozen one", "the bias is not added",
    "another number of functions",
)  # fmt: skip

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
        linear_case("a layer, frozen bias", 144, (3, 4), frozen=["bias", "x"]),
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
                "A gradient is in .grad before later was called: let backward return None for weight and bias, and "
                "append a function to later that adds them to .grad when it is called."),
        Mistake(_COMPUTED,
                "The weight's gradient is only added later, but computed in backward, where the previous stage waits "
                "for it: the product belongs into the function that you append."),
        Mistake(_IN_FORWARD,
                "Forward appends to later: backward must, because the executor takes what is in later after a "
                "backward, and a forward without backward puts nothing off."),
        Mistake(_NUMBER,
                "Each backward appends exactly one function to the list that it was given, and takes none out. What "
                "weight and bias need is in it. If both are frozen, it does nothing, and is appended all the same."),
        Mistake(_X_AGAIN,
                "x has its gradient since backward. A second .backward() from the same x adds to it, and to all that x "
                "was computed from: compute the products by hand, or from x.detach()."),
        Mistake(_LAST,
                "This gradient is only that of the last backward: add to .grad instead of replacing it."),
        Mistake(_FROZEN, "A frozen weight or bias gets no gradient: ask its requires_grad before you add."),
        Mistake(_NO_BIAS, "The output is x @ weight.T: the bias is missing."),
        Mistake("no bias to ask", "bias may be None: then there is nothing to add to, and nothing to ask.",
                says=("no attribute 'requires_grad'", "no attribute 'grad'"), certain=True),
        Mistake("no gradient yet",
                "Before the first backward .grad is None, and nothing can be added to it: set it then, and add later.",
                says=("no attribute 'add_'", "'NoneType' and 'Tensor'"), certain=True),
        Mistake(_NOTHING_FOR_X,
                "backward returns nothing for x: the stage before waits for gradient @ weight, so this one is not put "
                "off."),
        Mistake("x needs no gradient",
                "x needs no gradient here, as on the first stage, and autograd found nothing else that does: it knows "
                "only the tensors that apply is given. Hand it weight and bias too.",
                seen=_x_needs_none, certain=True),
        Mistake("rows not joined",
                "With samples of several rows a gradient has three dimensions: reshape it and x to (rows, features) "
                "first.", seen=_rows_fail, certain=True),
    ),
)  # fmt: skip
