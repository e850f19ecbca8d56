"""Recomputing in place of keeping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.compare import difference
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.schedules.recompute.driver import drive, forward_and_backward


def recompute_case(
    name: str,
    seed: int,
    width: int,
    num_layers: int,
    *,
    needs_gradient: bool = True,
    dropout: float = 0.0,
    frozen: int | None = None,
    spare: bool = False,
    norm: bool = False,
) -> Case:
    """Return a case that runs checkpointed on a module of that many layers and on an input of 3 samples."""
    draw = draws.generator(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    module: dict[str, Value] = {
        "weights": [normal(width, width) / 2 for _ in range(num_layers)],
        "dropout": dropout,
        "frozen": frozen,
        "spare": normal(2) if spare else None,
        "norm": norm,
    }
    inputs: dict[str, Value] = {
        "module": module,
        "x": normal(3, width),
        "weight": normal(3, width),
        "needs_gradient": needs_gradient,
        "seed": draws.part_of(seed, "dropout"),
    }
    return Case(name, 1, (inputs,))


def expected(case: Case) -> list[Values]:
    """Return what a plain call of the module brings (the oracle)."""
    return [forward_and_backward(lambda module, x: module(x), case.inputs[0])]


_BUFFER = "the buffer "


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether all is as without recomputing, except that only the input is kept."""
    assert isinstance(got, tuple)
    came, right = got[0], expected(case)[0]
    if "problem" in came:
        return Verdict(False, message=str(came["problem"]))
    return _results(case, came, right) or _costs(case, came) or Verdict(True)


def _results(case: Case, came: Values, right: Values) -> Verdict | None:
    grads, wanted = cast(dict[str, Any], came.get("grads") or {}), cast(dict[str, Any], right["grads"])
    parts: list[tuple[str, Any, Any]] = [("the output", came.get("out"), right["out"])]
    parts += [(f"the gradient of {name}", grads.get(name), wanted[name]) for name in wanted]
    parts.append(("the gradient of x", came.get("x_grad"), right["x_grad"]))
    buffers, kept = (cast(dict[str, Any], each.get("buffers") or {}) for each in (came, right))
    parts += [(f"{_BUFFER}{name} after backward", buffers.get(name), kept[name]) for name in kept]
    parts.append(("the random number drawn after forward", came.get("next"), right["next"]))
    parts.append(("the random number drawn after backward", came.get("after"), right["after"]))
    for what, found, good in parts:
        text = _apart(found, good)
        if text:
            return Verdict(False, message=f"{what[0].upper()}{what[1:]} is not that of module(x): {text}.")
    return None


def _apart(found: Any, good: Any) -> str:
    if good is None or found is None:
        return (
            ""
            if found is good
            else f"{'a tensor' if good is None else 'None'} where there should be "
            + ("none" if good is None else "one")
        )
    wrong = difference(found, good, torch.full(good.shape, 1e-9, dtype=torch.float64))
    return "" if wrong is None else f"{wrong.got}, expected {wrong.expected}"


def _costs(case: Case, came: Values) -> Verdict | None:
    x = cast(Tensor, case.inputs[0]["x"])
    bound, kept = x.numel() * x.element_size(), cast(int, came["kept_bytes"])
    if kept > bound:
        return Verdict(
            False, message=f"{kept} bytes were kept for backward; x alone has {bound}.", expected=f"at most {bound}",
            got=str(kept),
        )  # fmt: skip
    calls = (came["calls_forward"], came["calls"])
    again = cast(int, calls[1]) - cast(int, calls[0])
    if calls != (1, 2):
        return Verdict(
            False,
            message=f"The module ran {calls[0]} times in forward and {again} times in "
            "backward; once each is asked for.",
        )
    return None


def _wrong(*starts: str) -> Callable[[Case, Got, Wire], bool]:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple):
            return False
        return judge(case, got, wire).message.startswith(starts)

    return seen


EXERCISE = judged(
    id="recompute",
    functions=("checkpointed",),
    driver=drive,
    oracle=expected,
    judge=judge,
    visible=(
        recompute_case("4 layers", 61, 5, 4),
        recompute_case("an input that needs no gradient", 62, 4, 3, needs_gradient=False),
        recompute_case("dropout", 63, 6, 3, dropout=0.5),
        recompute_case("a frozen and an unused parameter", 64, 3, 3, frozen=1, spare=True),
        recompute_case("BatchNorm", 65, 4, 3, norm=True),
    ),
    distributed=False,
    hints=(
        "When is the module called a second time, with which random numbers, and what does that call leave behind? "
        "What must autograd believe the function depends on?",
        "An autograd.Function with forward(ctx, x, *parameters) and backward(ctx, gradient). Forward keeps x and the "
        "random state and runs the module (autograd is off there). Backward copies the buffers, sets the state, runs "
        "the module on x.detach() with gradients, puts the state back, asks torch.autograd.grad for the gradients of x "
        "and of every parameter, and puts the buffers back.",
        "with torch.enable_grad(): out = module(x); found = torch.autograd.grad(out, [x, *parameters], gradient, "
        "allow_unused=True); return tuple(found), with None in x's place where ctx.needs_input_grad[0] is False. Call "
        "it as Recompute.apply(x, *parameters). Buffers: copies before the second run, buffer.copy_(copy) after grad.",
    ),
    mistakes=(
        Mistake(
            "calls the library",
            "torch.utils.checkpoint was called: write it yourself, as an autograd.Function.",
            lambda case, got, wire: isinstance(got, Failure) and "torch.utils.checkpoint" in got.message,
            certain=True,
        ),
        Mistake(
            "everything is kept",
            "The module's activations are still kept: run it in an autograd.Function's forward, and again in backward.",
            lambda case, got, wire: isinstance(got, tuple) and "bytes were kept" in judge(case, got, wire).message,
        ),
        Mistake(
            "no gradient without x",
            "Where x needs no gradient the output has none either, and the parameters get none: hand the parameters to "
            "apply too.",
            lambda case, got, wire: (
                not case.inputs[0].get("needs_gradient", True) and _wrong("The gradient of")(case, got, wire)
            ),
        ),
        Mistake(
            "other random numbers",
            "With dropout the second run drew other numbers: keep torch.get_rng_state() in forward and set it before "
            "the module runs again.",
            lambda case, got, wire: (
                isinstance(got, tuple)
                and bool(cast(dict[str, Any], case.inputs[0]["module"])["dropout"])
                and _wrong("The gradient of")(case, got, wire)
            ),
        ),
        Mistake(
            "the random state is left changed",
            "After backward the next random number is another one than without recomputing: put back the state that "
            "was there before the second run.",
            _wrong("The random number drawn after backward"),
        ),
        Mistake(
            "BatchNorm counts twice",
            "Gradients are right, but the second run has moved the running statistics once more: keep copies of "
            "module.buffers() before it, and copy them back when the gradients are there.",
            _wrong("The buffer "),
        ),
        Mistake(
            "buffers put back too early",
            "The buffers were copied back between the second run and its gradients, and autograd still needed them: "
            "copy them back when the gradients are there.",
            lambda case, got, wire: isinstance(got, Failure) and "modified by an inplace operation" in got.message,
            certain=True,
        ),
        Mistake(
            "gradients missing",
            "Some gradients are missing or wrong: return one for x and one for each parameter, in the order of apply.",
            _wrong("The gradient of"),
        ),
        Mistake(
            "unused parameters",
            "A parameter that the output does not depend on has no gradient: torch.autograd.grad(..., "
            "allow_unused=True).",
            lambda case, got, wire: isinstance(got, Failure) and "appears to not have been used" in got.message,
            certain=True,
        ),
        Mistake(
            "frozen parameters",
            "Only parameters that need a gradient can be asked for one: leave out those with requires_grad=False.",
            lambda case, got, wire: (
                isinstance(got, Failure)
                and "require" in got.message
                and "grad" in got.message
                and "frozen" in case.name
            ),
            certain=True,
        ),
    ),
)
