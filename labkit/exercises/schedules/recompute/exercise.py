"""Recomputing in place of keeping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.compare import difference
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.values import integer, listed, number, record, tensor
from labkit.checks.wire import Wire
from labkit.exercises.schedules.recompute.driver import drive, forward_and_backward, numbers
from labkit.words import plural, times


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
    counts: bool = False,
    twice: bool = False,
    opposite: bool = False,
) -> Case:
    """Return a case that runs checkpointed on a module of that many layers and on an input of 3 samples.

    With `opposite` each run of the module, and backward, needs a number that another rank gives when its turn has come.
    """
    who = ("rank", 0) if opposite else ()
    draw = draws.generator(seed, *who)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    module: dict[str, Value] = {
        "weights": [normal(width, width) / 2 for _ in range(num_layers)],
        "dropout": dropout,
        "frozen": frozen,
        "spare": normal(2) if spare else None,
        "norm": norm,
        "counts": "copied" if counts and twice else counts,
    }
    inputs: dict[str, Value] = {
        "module": module,
        "x": normal(3, width),
        "weight": normal(3, width),
        "needs_gradient": needs_gradient,
        "seed": draws.part_of(seed, *who, "dropout"),
        "twice": twice,
    }
    if not opposite:
        return Case(name, 1, (inputs,))
    runs = 1 + torch.rand(3, generator=draws.generator(seed, "rank", 1), dtype=torch.float64)
    return Case(name, 2, ({**inputs, "opposite": True}, {"runs": runs[:2].tolist(), "out": float(runs[2])}))


def of_tokens(case: Case) -> Case:
    """Return the case with tokens for an input: whole numbers, which choose rows of the first layer's weights."""
    x = tensor(case.inputs[0], "x")
    return replace(case, inputs=({**case.inputs[0], "x": (100 * x[:, 0].abs()).long() % x.shape[1]},))


def expected(case: Case) -> list[Values]:
    """Return what a plain call of the module brings (the oracle); gradients are those of the module's second run."""
    if case.world_size == 1:
        return [forward_and_backward(lambda module, x: module(x), case.inputs[0])]
    (first, second), out = listed(case.inputs[1], "runs"), number(case.inputs[1], "out")
    forward, backward = (
        forward_and_backward(lambda module, x: module(x), case.inputs[0], numbers([run], out))
        for run in (first, second)
    )
    return [{**forward, "grads": backward["grads"], "x_grad": backward["x_grad"]}, {"gave": 3}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is not as without recomputing, or is kept besides the input, or runs more often."""
    came, right = got[0], expected(case)[0]
    if "problem" in came:
        yield Finding("", str(came["problem"]))
        return
    for what, found, good, mistake in _parts(case, came, right):
        if text := _apart(found, good):
            yield Finding(mistake, f"{what[0].upper()}{what[1:]} is not that of module(x): {text}.")
    yield from _costs(case, came)


def _parts(case: Case, came: Values, right: Values) -> Iterator[tuple[str, Any, Any, str]]:
    """Yield each thing that came: in words, itself, what it should be, and the mistake where it is not."""
    grads, wanted = (cast(dict[str, Any], each.get("grads") or {}) for each in (came, right))
    gradient = _OTHER_NUMBERS if record(case.inputs[0], "module")["dropout"] else _MISSING
    if not case.inputs[0].get("needs_gradient", True):
        gradient = _WITHOUT_X
    gradient = _LATER if _is_of_another_turn(case, came) else _of_gradients(case, grads, wanted) or gradient
    yield "the output", came.get("out"), right["out"], ""
    for name in wanted:
        yield f"the gradient of {name}", grads.get(name), wanted[name], gradient
    yield "the gradient of x", came.get("x_grad"), right["x_grad"], gradient
    buffers, kept = (cast(dict[str, Any], each.get("buffers") or {}) for each in (came, right))
    for name in kept:
        mistake = _EARLIER if case.inputs[0].get("twice") else _TWICE
        start = cast(dict[str, Any], came.get("start") or {})
        as_before = bool(start) and all(not _apart(buffers.get(each), start[each]) for each in kept)
        mistake = _AT_THE_START if as_before else mistake
        yield f"the buffer {name} after backward", buffers.get(name), kept[name], mistake
    yield "the random number drawn after forward", came.get("next"), right["next"], _SEEDED
    yield "the random number drawn after backward", came.get("after"), right["after"], _STATE


def _in_eval_mode(module: Any, x: Tensor) -> Any:
    module.eval()
    return module(x)


def _of_gradients(case: Case, grads: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Return which mistake gives these gradients of the parameters, or ""."""

    def alike(others: dict[str, Any]) -> bool:
        return not any(_apart(grads.get(name), others[name]) for name in others)

    if any(wanted[name] is None and grads.get(name) is not None for name in wanted):
        return _ZEROS
    if alike({name: None if each is None else 2 * each for name, each in wanted.items()}):
        return _DOUBLED
    ones = {**case.inputs[0], "weight": torch.ones_like(tensor(case.inputs[0], "weight"))}
    ways: Sequence[tuple[str, Callable[[], dict[str, Value]]]] = (
        (_OF_THE_SUM, lambda: forward_and_backward(lambda module, x: module(x), ones)),
        (_MODE, lambda: forward_and_backward(_in_eval_mode, case.inputs[0])),
    )
    if case.world_size > 1 or alike(wanted):
        return ""
    return next((name for name, way in ways if alike(cast(dict[str, Any], way()["grads"]))), "")


def _is_of_another_turn(case: Case, came: Values) -> bool:
    """Return whether the gradients are those of runs with other counts of calls, so that all are off by one factor."""
    if not record(case.inputs[0], "module").get("counts"):
        return False
    found, good = (cast(dict[str, Any], each.get("grads") or {}) for each in (came, expected(case)[0]))
    if any(not isinstance(found.get(name), Tensor) for name in good):
        return False
    factor = float((found["weights.0"] / good["weights.0"]).flatten()[0])
    return not any(_apart(found[name], factor * good[name]) for name in good)


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


def _costs(case: Case, came: Values) -> Iterator[Finding]:
    x, kept = tensor(case.inputs[0], "x"), integer(came, "kept_bytes")
    bound = x.numel() * x.element_size()
    if kept > bound:
        said = f"{kept} bytes were kept for backward; x alone has {bound}."
        yield Finding(_KEPT, said, f"at most {bound}", str(kept))
    if not kept:
        yield Finding(_NOT_SAVED, "Nothing went through ctx.save_for_backward.", "x", "nothing")
    if parameters := integer(came, "saved_parameters"):
        yield Finding(_PARAMETERS, f"ctx.save_for_backward got x and {plural(parameters, 'parameter')}.")
    forward, both = integer(came, "calls_forward"), integer(came, "calls")
    calls = 2 if case.inputs[0].get("twice") else 1
    if (forward, both) != (calls, 2 * calls):
        said = (
            f"The module ran {times(forward)} in forward and {times(both - forward)} in backward, not {times(calls)}."
        )
        yield Finding(_COPY if both == forward == calls else "", said)


def _wants_a_frozen_one(case: Case, got: Got, wire: Wire) -> bool:
    said = got.message if isinstance(got, Failure) else ""
    return "require" in said and "grad" in said and "frozen" in case.name


_LIBRARY, _KEPT, _WITHOUT_X = "calls the library", "everything is kept", "no gradient without x"
_OTHER_NUMBERS, _STATE = "other random numbers", "the random state is left changed"
_TWICE, _MISSING = "BatchNorm counts twice", "gradients missing"
_UNUSED, _FROZEN, _EARLY = "unused parameters", "frozen parameters", "buffers put back too early"
_LATER, _EARLIER = "begins with later buffers", "buffers of an earlier run"
_ZEROS, _DOUBLED, _OF_THE_SUM, _MODE, _AT_THE_START = (
    "a gradient in place of None",
    "gradients twice",
    "the gradient that came is not used",
    "another mode",
    "buffers of before the first run",
)
_COPY, _ORDER = "another module than this one ran", "gradients in another order"
_NOT_SAVED, _PARAMETERS, _SEEDED, _OFF, _WHOLE = (
    "x is not saved", "parameters are saved", "the generator is set in forward", "autograd is off",
    "x cannot have a gradient",
)  # fmt: skip
MISTAKES = (
    Mistake(_LIBRARY,
            "torch.utils.checkpoint was called: write it yourself, as an autograd.Function.",
            says=("torch.utils.checkpoint",), certain=True),
    Mistake(_KEPT,
            "More is kept than x. ctx.save_for_backward gets x alone: no output and no activation. In an "
            "autograd.Function's forward autograd is off, so run the module there, and again in backward."),
    Mistake(_NOT_SAVED,
            "x goes through ctx.save_for_backward, and comes back in ctx.saved_tensors: so autograd sees whether x was "
            "changed in between, and frees it after backward. Attributes of ctx are for what is no input or output."),
    Mistake(_PARAMETERS,
            "ctx.save_for_backward gets x alone. The parameters are in the module, and backward finds them there."),
    Mistake(_COPY,
            "The module did not run in backward: a copy of it did, or a graph was kept from forward. A copy needs "
            "memory for all parameters; run the module itself again."),
    Mistake(_ORDER,
            "backward returns one gradient, or None, for each argument of forward after ctx, in their order: x first, "
            "then the parameters as apply got them.",
            says=("returned an invalid gradient", "returned an incorrect number of gradients"), certain=True),
    Mistake(_SEEDED,
            "After forward the next random number is another one than after module(x): forward sets no seed and no "
            "state. It notes the state, and backward sets it."),
    Mistake(_WHOLE,
            "This x holds whole numbers, as tokens are, and cannot have a gradient: ask for one only where "
            "ctx.needs_input_grad[0] says so.",
            says=("can require gradients",), certain=True),
    Mistake(_WITHOUT_X,
            "Where x needs no gradient the output has none either, and the parameters get none: hand the parameters "
            "to apply too."),
    Mistake(_OTHER_NUMBERS,
            "With dropout the second run drew other numbers: save torch.get_rng_state() in forward and restore it "
            "before the module runs again."),
    Mistake(_STATE,
            "After backward the next random number differs from the one without recomputing: restore the state from "
            "before the second run."),
    Mistake(_TWICE,
            "Gradients are right, but the second run has moved the running statistics once more: keep copies of "
            "module.buffers() before it, and copy them back once the gradients are computed."),
    Mistake(_ZEROS,
            "A frozen or unused parameter has a gradient, and a plain call leaves None. torch.autograd.grad gives None "
            "for an unused one: return that."),
    Mistake(_DOUBLED,
            "Gradients came twice: .backward() inside backward adds to .grad, and so does autograd with what backward "
            "returns. Ask torch.autograd.grad, which adds nothing."),
    Mistake(_OF_THE_SUM,
            "These are the gradients of the output's sum: hand the gradient that backward got to torch.autograd.grad."),
    Mistake(_MODE,
            "The second run was in eval mode: there dropout and BatchNorm compute something else. Run the module as it "
            "is."),
    Mistake(_AT_THE_START,
            "The buffers are those from before the first run, so it is as if no run had been: after backward put back "
            "what backward found there, not the copies of forward."),
    Mistake(_MISSING,
            "Some gradients are missing or wrong: return one for x and one for each parameter, in the order of "
            "apply."),
    Mistake(_UNUSED,
            "A parameter that the output does not depend on has no gradient: torch.autograd.grad(..., "
            "allow_unused=True).",
            says=("appears to not have been used",), certain=True),
    Mistake(_FROZEN,
            "Only parameters that need a gradient can be asked for one: leave out those with requires_grad=False.",
            seen=_wants_a_frozen_one, certain=True),
    Mistake(_OFF,
            "The second run left no graph: autograd is off inside backward. Run the module, and whatever is computed "
            "from its output, in `with torch.enable_grad():`.",
            says=("does not require grad and does not have a grad_fn",), certain=True),
    Mistake(_LATER,
            "The second run began with the buffers that the first one left, so the module computed something else: "
            "in forward keep copies of the buffers before the module runs, and put them in place before it runs "
            "again."),
    Mistake(_EARLIER,
            "Two calls came before backward, and the buffers are no longer those that the last one left: keep copies "
            "of module.buffers() before the second run, and copy them back once the gradients are computed."),
    Mistake(_EARLY,
            "The buffers were copied back between the second run and its gradients, and autograd still needed them: "
            "copy them back once the gradients are computed.",
            says=("modified by an inplace operation",), certain=True),
)  # fmt: skip

EXERCISE = declared(
    id="recompute",
    functions=("checkpointed",),
    driver=drive,
    oracle=expected,
    looks=(find,),
    visible=(
        recompute_case("4 layers", 61, 5, 4),
        of_tokens(recompute_case("an input that needs no gradient", 62, 4, 3, needs_gradient=False)),
        recompute_case("dropout", 63, 6, 3, dropout=0.5),
        recompute_case("a frozen and an unused parameter", 64, 3, 3, frozen=1, spare=True),
        recompute_case("BatchNorm", 65, 4, 3, norm=True),
        recompute_case("an output that depends on a buffer", 66, 4, 2, counts=True),
        recompute_case("two calls, BatchNorm", 67, 4, 2, norm=True, twice=True),
        recompute_case("two calls, an output that depends on a buffer", 68, 4, 2, counts=True, twice=True),
    ),
    distributed=False,
    hints=(
        "When is the module called a second time, from which random numbers and buffers, and what does that call "
        "leave behind? What must autograd believe the function depends on?",
        "An autograd.Function with forward(ctx, x, *parameters) and backward(ctx, gradient). Forward keeps x, the "
        "random state and copies of the buffers, and runs the module (autograd is off there). Backward notes the "
        "random state and the buffers of now, restores those of forward, runs the module on x.detach() with "
        "gradients, asks torch.autograd.grad for the gradients of x and of every parameter, and restores those of now.",
        "with torch.enable_grad(): out = module(x); found = torch.autograd.grad(out, [x, *parameters], gradient, "
        "allow_unused=True); return tuple(found), with None in x's place where ctx.needs_input_grad[0] is False. Call "
        "it as Recompute.apply(x, *parameters). Buffers: [b.clone() for b in module.buffers()] in forward and again in "
        "backward; buffer.copy_(copy) of the first before the second run, of the second after grad.",
    ),
    mistakes=MISTAKES,
)
