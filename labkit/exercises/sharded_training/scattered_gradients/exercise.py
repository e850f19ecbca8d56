"""ZeRO-2: gradients leave as they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from torch import Tensor

from labkit.checks.as_if import as_if
from labkit.checks.blame import HANGS, by_signs
from labkit.checks.case import Case, Values
from labkit.checks.cut_wire import between_barriers, waited_at_once
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.structure import and_more
from labkit.checks.values import integers
from labkit.checks.wire import Wire
from labkit.exercises.sharded_training.marked_wire import gathers, scatters
from labkit.exercises.sharded_training.on_ranks import model_for
from labkit.exercises.sharded_training.scattered_gradients.driver import drive
from labkit.exercises.sharded_training.training import (
    Parameters,
    Ways,
    alone,
    begun,
    each_by_itself,
    equal,
    least_traffic,
    num_trained,
    steps_that_came,
    training_case,
    wrong_names,
)
from labkit.words import join, plural


def scattering_case(name: str, seed: int, world_size: int, **options: Any) -> Case:
    """Return a case of scattered_gradients; see training_case for the options."""
    return training_case(name, seed, world_size, same_batch=False, **options)


def expected(case: Case) -> list[Values]:
    """Return the parameters after each step (the oracle)."""
    steps = alone(case)
    return [{"steps": cast(Any, steps), "left": [0] * len(steps), "held": [0] * len(steps)} for _ in case.inputs]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with parameters, with gradients that stay, and with how they travelled."""
    right = alone(case)
    for rank, values in enumerate(got):
        came = steps_that_came(values)
        for number, (mine, wanted) in enumerate(zip(came, right, strict=True)):
            wrong = wrong_names(mine, wanted)
            if wrong:
                own = _OWN if equal(came[:1], each_by_itself(case)) else ""
                ways: Ways = [
                    (_SUM, lambda: alone(case, factor=case.world_size)),
                    (_DIVIDED, lambda: alone(case, factor=1 / case.world_size)),
                ]
                name = as_if(came, ways, equal) or own or (_STILL if _some_stand_still(case, number, came) else "")
                yield Finding(name, f"After step {number} rank {rank} has wrong values in {join(wrong)}.", rank=rank)
    for rank, values in enumerate(got):
        yield from _whole(case, wire, rank)
        if any(integers(values, "left")):
            count = plural(max(integers(values, "left")), "parameter")
            yield Finding(
                _KEPT,
                f"After backward {count} of rank {rank} still {'has' if count[:2] == '1 ' else 'have'} a grad.",
                rank=rank,
            )
        if any(integers(values, "held")):
            text = f"In the middle of backward rank {rank} still holds gradients that were complete long before."
            yield Finding(_LATE, text, rank=rank)
        yield from _in_backward(wire, rank)


def _some_stand_still(case: Case, number: int, came: Sequence[Parameters]) -> bool:
    """Return whether a step moved trained parameters, and others not at all."""
    before = begun(case) if not number else came[number - 1]
    trained = [name for name, each in model_for(case.inputs[0]).named_parameters() if each.requires_grad]
    return 0 < len(set(trained) - set(wrong_names(came[number], cast("dict[str, Tensor]", before)))) < len(trained)


def _whole(case: Case, wire: Wire, rank: int) -> Iterator[Finding]:
    calls = [call for part in between_barriers(wire, rank) for call in part]
    if any(call.kind in ("all_reduce", "reduce") for call in calls):
        text = f"The values are right, but rank {rank} calls all_reduce, which brings whole gradients back."
        yield Finding(_ALL_REDUCED, text, rank=rank)
    padded = 8 * case.world_size * sum(-(-each // case.world_size) for each in num_trained(case))
    most = len(alone(case)) * padded
    for some, what in ((scatters(calls), "gradients"), (gathers(calls), "parameters")):
        sent = sum(call.bytes for call in some)
        if sent > most:
            text = f"Rank {rank} moves {sent} bytes of {what}; padded they have {most}."
            yield Finding(_TWICE, text, f"{most} bytes", f"{sent} bytes", rank)


def _in_backward(wire: Wire, rank: int) -> Iterator[Finding]:
    parts = between_barriers(wire, rank)
    for number in range((len(parts) - 1) // 3):
        first, second = parts[3 * number], parts[3 * number + 1]
        if not scatters(first):
            text = f"In step {number} no gradient of rank {rank} has left when backward is half over."
            yield Finding(_LATE, text, rank=rank)
        inside = scatters([*first, *second])
        if len(inside) > 2 and all(waited_at_once(call) for call in inside):
            yield Finding(
                _BLOCKS, f"In step {number} rank {rank} waits for each reduce-scatter in backward.", rank=rank
            )


_SUM, _OWN, _ALL_REDUCED, _KEPT, _LATE, _TWICE, _BLOCKS = (
    "sum for mean", "own gradients", "all-reduced", "gradients kept", "all at the end", "sent twice",
    "waits in backward",
)  # fmt: skip
_DIVIDED, _STILL, _ONCE = ("divided twice", "a gradient forgotten", "params read as a list")
MISTAKES = {
    _DIVIDED: "start_scatter gives the mean already. Do not divide it again.",
    _STILL: (
        "Some parameters have not moved: finish every reduce-scatter that is in flight, and give the gradient to its "
        "shard."
    ),
    _ONCE: "params may be an iterator, as model.parameters() is, which can be read once: use self.shards, or begin "
    "with params = list(params).",
    _SUM: "The gradients are added up. The step takes their mean.",
    _OWN: "This rank trained only on its own gradients.",
    _ALL_REDUCED: "Each rank needs its shard of the mean gradient, and nothing else: reduce-scatter.",
    _KEPT: "Once a gradient is under way, set parameter.grad = None: the memory it takes is what this is about.",
    _LATE: "Send each gradient from its own hook, when it is complete, instead of all of them after backward.",
    _TWICE: "More travels than is needed: each gradient once, each parameter once in a step.",
    _BLOCKS: "Begin the reduce-scatter in the hook, keep the function that finishes it, and call that in step.",
}

EXERCISE = Exercise(
    id="scattered_gradients",
    functions=("ScatteringOptimizer",),
    driver=drive,
    oracle=expected,
    structure=and_more(expected, kept=0),
    find=find,
    least=least_traffic,
    visible=(
        scattering_case("2 ranks, plain layers", 1321, 2, tied=False, frozen=False),
        scattering_case("3 ranks, a shared weight and frozen layers", 1322, 3),
        scattering_case("2 ranks, two groups", 1323, 2, groups=True),
        scattering_case("4 ranks, one step", 1324, 4, num_steps=1),
    ),
    hints=(
        "Your ShardedOptimizer gives each shard its part of an equal gradient. The only new thing is where that part "
        "comes from.",
        "In a hook, begin start_scatter([parameter.grad]), remember the function it returns, and set "
        "parameter.grad = None. "
        "In step, call each of these functions: it returns the list with the shard's gradient.",
        "def on_gradient(self, parameter): self.in_flight.append((parameter, start_scatter([parameter.grad]))); "
        "parameter.grad = None. In step: (self.shards[parameter].grad,) = finish(), for each; then empty the list.",
    ),
    mistakes=MISTAKES,
    blame=by_signs({_ONCE: ("subscriptable", "has no len()"), _LATE: HANGS}),
    certain=frozenset({_ONCE}),
)
