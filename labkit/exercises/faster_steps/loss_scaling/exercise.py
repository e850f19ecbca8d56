"""Loss scaling: which steps are taken, and with which scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.compare import near, wrong_value
from labkit.checks.declared import Mistake, declared
from labkit.checks.draws import normal
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING
from labkit.checks.values import flag, integer, listed, number, records, tensors
from labkit.checks.wire import Wire
from labkit.exercises.faster_steps.loss_scaling.driver import LARGE, drive

_BAD = {"i": math.inf, "-": -math.inf, "n": math.nan}
_LR = 0.1


def scaling_case(
    name: str, seed: int, events: Sequence[str], scale: float = 1024.0, growth_interval: int = 3, *,
    torchs: bool = False,
) -> Case:  # fmt: skip
    """Return a case: for each step a word; "." is a good step, "i", "-", "n" put that number into the first parameter's
    gradient and capital "I", "N" into the second's; "L" makes that one so large that only its sum is infinite, "b"
    spoils both. The optimizer is plain, or torch's own.
    """
    steps: list[Value] = []
    for step, event in enumerate(events):
        slopes = [normal(seed + 10 * step + which, 3, dtype=torch.float64) for which in range(2)]
        if event == "L":
            slopes[1][:] = 1.2e308
        elif event == "b":
            slopes[0][1] = slopes[1][1] = math.inf
        elif event != ".":
            slopes[1 if event.isupper() else 0][1] = _BAD[event.lower()]
        steps.append([*slopes])
    about: dict[str, Value] = {"scale": scale, "growth_interval": growth_interval, "slopes": steps}
    return Case(name, 1, (about | ({"torchs": True} if torchs else {}),))


def expected(case: Case) -> list[Values]:
    """Return for each step whether it is taken, the scale before and after, and the weights (the oracle)."""
    inputs = case.inputs[0]
    scale, run = number(inputs, "scale"), 0
    weights = [torch.ones(3, dtype=torch.float64) for _ in range(3)]
    steps: list[Value] = []
    for slopes in listed(inputs, "slopes"):
        before, good = scale, bool(torch.stack(slopes).isfinite().all())
        run = run + 1 if good else 0
        if good:
            moves = [torch.where(slope.abs() < LARGE, slope, slope / before) for slope in slopes]
            weights = [weight - _LR * move for weight, move in zip(weights, moves, strict=False)] + weights[2:]
        if not good:
            scale /= 2
        elif run == integer(inputs, "growth_interval"):
            scale, run = scale * 2, 0
        step: dict[str, Value] = {"said": good, "asked": before, "steps": int(good), "scale": scale}
        steps.append(step | {"weights": [*weights], "reached": True, "loss_kept": True})
    return [{"steps": steps}]


def structure(case: Case) -> list[Any]:
    """Return what results look like."""
    steps = records(expected(case)[0], "steps")
    return [{"steps": [{**step, "said": ANYTHING} for step in steps]}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong, in the order of the steps."""
    before: Values | None = None
    bad_before = False
    for place, (right, mine) in enumerate(
        zip(records(expected(case)[0], "steps"), records(got[0], "steps"), strict=True)
    ):
        where, slopes = f"Step {place}", listed(case.inputs[0], "slopes")[place]
        if not mine["loss_kept"]:
            yield Finding(_IN_PLACE, f"{where}: after scaled(loss) the loss itself is another number.")
        if not mine["reached"]:
            yield Finding(_NO_GRAPH, f"{where}: backward of scaled(loss) does not reach the parameters.")
        asked = number(mine, "asked")
        if math.isfinite(asked) and not math.isclose(asked, number(right, "asked"), rel_tol=1e-9):
            message = f"{where}: scaled(loss) is {asked:.6g} times the loss."
            yield Finding("the loss is not scaled", message, f"{right['asked']:.6g} times")
        yield from _wrongly_taken(where, slopes, right, mine, _unnoticed(case, got), before)
        yield from _wrong_weights(where, slopes, before, right, mine)
        yield from _wrong_scale(
            where, right, mine, bad_before, number(right, "asked") > number(case.inputs[0], "scale")
        )
        if mine["said"] is not right["said"]:
            message = f"{where}: step returned {mine['said']}."
            yield Finding("does not say it", message, f"{right['said']}", f"{mine['said']}")
        before, bad_before = right, bad_before or not right["said"]


def _unnoticed(case: Case, got: tuple[Values, ...]) -> set[str]:
    """Return which numbers, "inf" and "nan", were stepped on in every step that had them in one gradient."""
    steps = list(zip(listed(case.inputs[0], "slopes"), records(got[0], "steps"), strict=True))
    found = set[str]()
    for name, is_there in (("nan", torch.isnan), ("inf", torch.isinf)):
        with_it = [
            integer(mine, "steps")
            for slopes, mine in steps
            if bool(is_there(slopes[0]).any()) and bool(slopes[1].isfinite().all())
        ]
        found |= {name} if with_it and all(with_it) else set()
    return found


def _wrongly_taken(
    where: str, slopes: list[Tensor], right: Values, mine: Values, unnoticed: set[str], before: Values | None
) -> Iterator[Finding]:
    """Yield a finding if the optimizer did what it must not: a step with gradients that are not finite, or none."""
    taken = integer(mine, "steps")
    if not flag(right, "said") and taken:
        name = "not a number goes unnoticed" if bool(torch.stack(slopes).isnan().any()) else "infinity goes unnoticed"
        old = tensors(before, "weights") if before is not None else [torch.ones(3, dtype=torch.float64)] * 3
        stood = [torch.equal(was, now) for was, now in zip(old, tensors(mine, "weights"), strict=True)]
        if unnoticed == {"nan", "inf"}:
            name = _NOT_ALL
        if any(stood[:2]) and not all(stood[:2]):
            name = _ONE_SKIPPED
        elif math.isclose(number(mine, "scale"), number(right, "scale")):
            name = _ALL_THE_SAME
        elif bool(slopes[0].isfinite().all()):
            name = "only the first parameter is looked at"
        yield Finding(name, f"{where}: a gradient is not finite, and the optimizer took its step.")
    if flag(right, "said") and taken != 1:
        message = f"{where}: all gradients are finite, and the optimizer took {taken} steps."
        yield Finding("a good step is skipped", message)


def _wrong_weights(
    where: str, slopes: list[Tensor], before: Values | None, right: Values, mine: Values
) -> Iterator[Finding]:
    """Yield the weights that are wrong after a step; `before` is the step before it."""
    for place, (weight, wanted) in enumerate(zip(tensors(mine, "weights"), tensors(right, "weights"), strict=True)):
        if near(weight, wanted):
            continue
        name = "wrong weights"
        if place < len(slopes):
            old = tensors(before, "weights")[place] if before is not None else torch.ones_like(wanted)
            name = _named(place, old, _LR * slopes[place], weight, right) or name
        yield wrong_value(name, f"{where}: the weight of group {place} afterwards", weight, wanted)


def _named(place: int, old: Tensor, move: Tensor, weight: Tensor, right: Values) -> str:
    scale, following = number(right, "asked"), number(right, "scale")
    ways = [
        ("only the first group is unscaled" if place else "gradients are not unscaled", lambda: old - move * scale),
        ("unscaled twice", lambda: old - move / scale),
        ("unscaled with the next scale", lambda: old - move * scale / following),
    ]
    return as_if(weight, ways, near)


def _wrong_scale(where: str, right: Values, mine: Values, bad_before: bool, grown: bool) -> Iterator[Finding]:
    came, wanted = number(mine, "scale"), number(right, "scale")
    if math.isclose(came, wanted, rel_tol=1e-12):
        return
    if not flag(right, "said"):
        name = "the scale is not halved"
    elif came < wanted or wanted > number(right, "asked"):
        stays = _NO_RESTART if grown else "the scale never grows"
        name = stays if math.isclose(came, number(right, "asked")) else "another scale"
    else:
        name = "good steps are counted across a bad one" if bad_before else "the scale grows too early"
    yield Finding(name, f"{where}: the scale is {came:g} afterwards.", f"{wanted:g}", f"{came:g}")


_ALL_THE_SAME, _NO_RESTART = "stepped all the same", "the count does not start again"
_IN_PLACE, _NO_GRAPH, _NOT_ALL, _ONE_SKIPPED = (
    "the loss itself is changed", "the scaled loss has no graph", "not every entry is looked at",
    "one parameter alone is skipped",
)  # fmt: skip


def _fails_on_none(got: Got) -> bool:
    """Return whether a loss of None was to be used, outside of step."""
    return isinstance(got, Failure) and "'NoneType'" in got.message and ", in step" not in got.detail


EXERCISE = declared(
    id="loss_scaling",
    functions=("LossScaler",),
    driver=drive,
    oracle=expected,
    looks=(find,),
    mistakes=(
        Mistake("nothing is scaled", "scaled returned None: return loss times self.scale.",
                seen=lambda case, got, wire: _fails_on_none(got), certain=True),
        Mistake("a parameter without a gradient",
                "An unused parameter has the gradient None: leave it out.",
                says=("NoneType",), certain=True),
        Mistake("only the first group is unscaled",
                "The gradients of the first parameter group were divided by the scale, the others not: go through "
                "all of optimizer.param_groups."),
        Mistake("unscaled with the next scale",
                "The gradients were divided by the new scale. They belong to the scale of their loss: divide first, "
                "then double."),
        Mistake(_IN_PLACE,
                "scaled wrote into the loss that it was given, as loss *= scale does. The training loop still reads "
                "that loss: return a new tensor, loss * self.scale."),
        Mistake(_NO_GRAPH,
                "The scaled loss is a new number without the graph of the loss, as after item(), detach() or "
                "torch.tensor(): multiply the tensor itself, loss * self.scale.",
                says=("does not require grad", "'float' object has no attribute"), certain=True),
        Mistake(_NOT_ALL,
                "Gradients with an infinite entry were stepped on, and such with a NaN. A step is good only if every "
                "entry of every gradient is finite: gradient.isfinite().all(), for all of them."),
        Mistake(_ONE_SKIPPED,
                "The parameter that overflowed stayed, and another one moved. The whole step is skipped: no parameter "
                "moves, and step returns False."),
        Mistake("the loss is not scaled", "scaled(loss) is loss times self.scale."),
        Mistake("not a number goes unnoticed",
                "NaN slips through: isinf does not see it, and no comparison with it is true. isfinite sees both."),
        Mistake("infinity goes unnoticed",
                "An infinite gradient was stepped on. isfinite of every entry of every gradient sees it, -inf and NaN "
                "too; isnan does not, nor does a look at the parameters."),
        Mistake("only the first parameter is looked at",
                "The second parameter group overflowed unnoticed: look at the gradients of all groups."),
        Mistake("a good step is skipped",
                "The step must be taken when all gradients are finite, once. Ask each entry: a sum or a norm of finite "
                "entries may be infinite."),
        Mistake("gradients are not unscaled",
                "The optimizer used scaled gradients: divide each .grad itself by the scale first. gradient / scale "
                "is a new tensor, which the optimizer does not see."),
        Mistake("unscaled twice", "The gradients were divided by the scale twice."),
        Mistake(_ALL_THE_SAME,
                "The scale was halved, so the overflow was seen, but the optimizer took its step all the same. The "
                "whole step is skipped, for parameters whose gradients are finite, too."),
        Mistake(_NO_RESTART,
                "The scale grew once and not again: after it has doubled, the count of good steps starts again at 0."),
        Mistake("the scale is not halved",
                "After a step that overflowed the scale must be half of what it was, however many gradients did."),
        Mistake("the scale never grows",
                "After growth_interval good steps in a row the scale doubles, however large it is."),
        Mistake("the scale grows too early", "The scale grows before growth_interval good steps in a row."),
        Mistake("another scale", "The scale doubles after growth_interval good steps in a row, and after a bad one it "
                "is halved: no other factors."),
        Mistake("good steps are counted across a bad one",
                "Only good steps in a row count: after a bad one, start from 0 again."),
        Mistake("does not say it", "step returns whether the optimizer took its step: True or False."),
    ),
    structure=structure,
    visible=(
        scaling_case("good steps, the scale grows every third", 6101, "......L", scale=2.0**16),
        scaling_case("infs and NaNs", 6102, ".i..n.b"),
        scaling_case("the second parameter overflows", 6103, "..I..N...", scale=0.5, growth_interval=2),
    ),
    distributed=False,
    hints=(
        "In which order must these happen: test whether all is finite, divide, step, change the scale?",
        "Collect the gradients of all param_groups. If any is not finite: halve the scale, reset the count, return "
        "False. Else divide each by the scale, optimizer.step(), count; at growth_interval double the scale and reset "
        "the count.",
        "gradients = [p.grad for group in optimizer.param_groups for p in group['params'] if p.grad is not None]; "
        "all(bool(g.isfinite().all()) for g in gradients)",
    ),
)  # fmt: skip
