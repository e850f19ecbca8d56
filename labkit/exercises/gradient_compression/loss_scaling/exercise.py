"""Loss scaling: which steps are taken, and with which scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.judged import judged
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.findings import (
    Finding,
    judging,
    mistakes,
    near,
    normal,
    raising,
    wrong_value,
)
from labkit.exercises.gradient_compression.loss_scaling.driver import drive

_BAD = {"i": math.inf, "-": -math.inf, "n": math.nan}


def scaling_case(name: str, seed: int, events: Sequence[str], scale: float = 1024.0, growth_interval: int = 3) -> Case:
    """Return a case: for each step a word; "." is a good step, "i", "-", "n" put that number into the first parameter's
    gradient and capital "I", "N" into the second's.
    """
    steps: list[Value] = []
    for number, event in enumerate(events):
        slopes = [normal(seed + 10 * number + which, 3, dtype=torch.float64) for which in range(2)]
        if event != ".":
            slopes[1 if event.isupper() else 0][1] = _BAD[event.lower()]
        steps.append(cast(Value, slopes))
    return Case(name, 1, ({"scale": scale, "growth_interval": growth_interval, "slopes": steps},))


def expected(case: Case) -> list[Values]:
    """Return for each step whether it is taken, the scale before and after, and the weights (the oracle)."""
    inputs = case.inputs[0]
    exponent, run = 0, 0
    weights = [torch.ones(3, dtype=torch.float64) for _ in range(3)]
    steps: list[Value] = []
    for slopes in cast(list[list[Tensor]], inputs["slopes"]):
        before = exponent
        good = bool(torch.stack(slopes).isfinite().all())
        run = run + 1 if good else 0
        if good:
            weights = [weight - 0.1 * slope for weight, slope in zip(weights, slopes, strict=False)] + weights[2:]
        exponent += -1 if not good else 1 if run == inputs["growth_interval"] else 0
        run = 0 if run == inputs["growth_interval"] else run
        start = cast(float, inputs["scale"])
        steps.append(
            {
                "said": good,
                "asked": start * 2.0**before,
                "scale": start * 2.0**exponent,
                "weights": cast(Value, list(weights)),
            }
        )
    return [{"steps": steps}]


def structure(case: Case) -> list[Any]:
    """Return what comes of each step: the oracle's, and how often the optimizer took its step."""
    steps = cast(list[dict[str, Any]], expected(case)[0]["steps"])
    asked = [step["asked"] if step["said"] else math.nan for step in steps]  # of a loss that is not finite
    return [{"steps": [step | {"steps": int, "asked": scale} for step, scale in zip(steps, asked, strict=True)]}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Finding | None:
    """Return the first thing that is wrong, in the order of the steps."""
    slopes = cast(list[list[Tensor]], case.inputs[0]["slopes"])
    came = cast(list[dict[str, Any]], got[0]["steps"])
    bad_before = False
    before: list[Tensor] = [torch.ones(3, dtype=torch.float64)] * 3
    for number, (right, mine) in enumerate(
        zip(cast(list[dict[str, Any]], expected(case)[0]["steps"]), came, strict=True)
    ):
        where, joined = f"Step {number}", torch.stack(slopes[number])
        if math.isfinite(mine["asked"]) and not math.isclose(mine["asked"], right["asked"], rel_tol=1e-9):
            return Finding(
                "the loss is not scaled",
                f"{where}: scaled(loss) is {mine['asked']:.6g} times the loss.",
                f"{right['asked']:.6g} times",
            )
        if not right["said"] and mine["steps"]:
            seen = "not a number goes unnoticed" if bool(joined.isnan().any()) else "infinity goes unnoticed"
            if bool(joined[0].isfinite().all()):
                seen = "only the first parameter is looked at"
            return Finding(seen, f"{where}: a gradient is not finite, and the optimizer took its step.")
        if right["said"] and mine["steps"] != 1:
            return Finding(
                "a good step is skipped",
                f"{where}: all gradients are finite, and the optimizer took {mine['steps']} steps.",
            )
        for place, (weight, wanted, slope) in enumerate(
            zip(mine["weights"], right["weights"], [*slopes[number], None], strict=True)
        ):
            if near(weight, wanted, 1e-9):
                continue
            name = "wrong weights"
            if slope is not None:
                moved, due = (1 - float(weight[0])) if number == 0 else float("nan"), 0.1 * float(slope[0])
                ratio = moved / due if number == 0 and due else float("nan")
                if math.isclose(ratio, right["asked"], rel_tol=1e-6):
                    name = "gradients are not unscaled"
                elif math.isclose(ratio, 1 / right["asked"], rel_tol=1e-6):
                    name = "unscaled twice"
                if place and near(weight, before[place] - 0.1 * slope * right["asked"], 1e-9):
                    name = "only the first group is unscaled"
                elif near(weight, before[place] - 0.1 * slope * right["asked"] / right["scale"], 1e-9):
                    name = "unscaled with the next scale"
            return wrong_value(name, f"{where}: the weight of group {place} after it", weight, wanted)
        before = right["weights"]
        if not math.isclose(mine["scale"], right["scale"], rel_tol=1e-12):
            name = _scale_mistake(right, mine, bad_before)
            return Finding(
                name, f"{where}: the scale is {mine['scale']:g} after it.", f"{right['scale']:g}", f"{mine['scale']:g}"
            )
        if mine["said"] is not right["said"]:
            return Finding(
                "does not say it", f"{where}: step returned {mine['said']}.", str(right["said"]), str(mine["said"])
            )
        bad_before = bad_before or not right["said"]
    return None


def _scale_mistake(right: dict[str, Any], mine: dict[str, Any], bad_before: bool) -> str:
    if not right["said"]:
        return "the scale is not halved"
    if mine["scale"] < right["scale"]:
        return "the scale never grows" if math.isclose(mine["scale"], right["asked"]) else "another scale"
    return "good steps are counted across a bad one" if bad_before else "the scale grows too early"


EXERCISE = judged(
    id="loss_scaling",
    functions=("LossScaler",),
    driver=drive,
    oracle=expected,
    structure=structure,
    judge=judging(find),
    visible=(
        scaling_case("good steps, the scale grows every third", 6101, "......."),
        scaling_case("infinities and numbers that are none", 6102, ".i..n.-"),
        scaling_case("the second parameter overflows", 6103, "..I..N...", growth_interval=2),
    ),
    distributed=False,
    hints=(
        "In which order must these happen: look whether all is finite, divide, step, change the scale?",
        "Collect the gradients of all param_groups. If any is not finite: halve the scale, forget the count, "
        "return False. "
        "Else divide each by the scale, optimizer.step(), count; at growth_interval double and begin to count anew.",
        "gradients = [p.grad for group in optimizer.param_groups for p in group['params'] if p.grad is not None]; "
        "all(bool(g.isfinite().all()) for g in gradients)",
    ),
    mistakes=(
        raising(
            "a parameter without a gradient",
            "A parameter that took no part has the gradient None: leave it out.",
            "'NoneType' object has no attribute",
            "unsupported operand type(s) for /=: 'NoneType'",
            "NoneType",
        ),
        *mistakes(
            find,
            only_the_first_group_is_unscaled="The gradients of the first parameter group were divided by the scale, "
            "the others not: go through all of optimizer.param_groups.",
            unscaled_with_the_next_scale="The gradients were divided by the new scale. They belong to the scale of "
            "their loss: divide first, then double.",
            the_loss_is_not_scaled="scaled(loss) is loss times self.scale.",
            not_a_number_goes_unnoticed="NaN slips through: isinf does not see it, and NaN compares with nothing. "
            "isfinite sees "
            "both.",
            infinity_goes_unnoticed="An infinite gradient was stepped on: isnan does not see it. isfinite sees both, "
            "and -inf too.",
            only_the_first_parameter_is_looked_at="The second parameter group overflowed unnoticed: look at the "
            "gradients of "
            "all groups.",
            a_good_step_is_skipped="The step must be taken when all gradients are finite, once.",
            gradients_are_not_unscaled="The optimizer used scaled gradients: divide each by the scale first.",
            unscaled_twice="The gradients were divided by the scale twice.",
            the_scale_is_not_halved="After a step that overflowed the scale must be half of what it was.",
            the_scale_never_grows="After growth_interval good steps in a row the scale doubles.",
            the_scale_grows_too_early="The scale grows before growth_interval good steps in a row.",
            good_steps_are_counted_across_a_bad_one="Good steps count in a row: after a bad one, begin at 0 again.",
            does_not_say_it="step returns whether the optimizer took its step: True or False.",
        ),
    ),
)
