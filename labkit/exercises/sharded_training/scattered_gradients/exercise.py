"""ZeRO-2: gradients leave as they come."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.cut_wire import waited_at_once
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import and_more
from labkit.checks.values import integers, listed
from labkit.checks.wire import Wire
from labkit.exercises.sharded_training.on_ranks import model_for
from labkit.exercises.sharded_training.scattered_gradients.driver import drive
from labkit.exercises.sharded_training.training import (
    STEPS,
    alone,
    begun,
    first_steps,
    least_traffic,
    num_trained,
    own_gradients,
    trained,
    training_case,
    wrong_names,
)
from labkit.exercises.sharded_training.travels import calls_of, gathers, not_the_drivers, parts_of, scatters
from labkit.words import plural

GROWS = "memory grows from step to step"


def scattering_case(name: str, seed: int, world_size: int, **options: Any) -> Case:
    """Return a case of scattered_gradients; see training_case for the options."""
    return training_case(name, seed, world_size, same_batch=False, **options)


def expected(case: Case) -> list[Values]:
    """Return the parameters after each step (the oracle)."""
    steps = alone(case)
    return [{"steps": cast(Any, steps), "left": [0] * len(steps), "held": [0] * len(steps)} for _ in case.inputs]


def _some_stand_still(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether step 0 moved some trained parameters, and others not at all."""
    before = begun(case)
    all_trained = {name for name, each in model_for(case.inputs[0]).named_parameters() if each.requires_grad}
    still = [all_trained - set(wrong_names(came, before)) for came in first_steps(got)]
    return any(0 < len(each) < len(all_trained) for each in still)


def _nothing_left(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether an __init__ asked an empty list for its first entry."""
    if not isinstance(got, Failure) or got.error != "IndexError":
        return False
    return "in __init__" in got.detail and "[0]" in got.detail.rpartition("\n")[2]


def _late(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a hook that does not read what it is given found a parameter without a gradient."""
    if not isinstance(got, Failure) or "'NoneType' object has no attribute" not in got.message:
        return False
    hook = re.search(r"in <lambda>:.*lambda (\w+): (.*)", got.detail)
    return hook is not None and re.search(rf"\b{hook[1]}\b", hook[2]) is None


def _travels_once(case: Case, got: object, wire: Wire) -> Iterator[Finding]:
    padded = 8 * case.world_size * sum(-(-each // case.world_size) for each in num_trained(case))
    most = len(alone(case)) * padded
    for rank in range(case.world_size):
        calls = calls_of(wire, rank)
        if any(call.kind in ("all_reduce", "reduce") for call in calls):
            text = f"The values are right, but rank {rank} calls all_reduce, which brings whole gradients back."
            yield Finding("all-reduced", text, rank=rank)
        for some, what in ((scatters(calls), "gradients"), (gathers(calls), "parameters")):
            sent = sum(call.bytes for call in some)
            if sent > most:
                text = f"Rank {rank} moves {sent} bytes of {what}; padded they have {most}."
                yield Finding("sent twice", text, f"{most} bytes", f"{sent} bytes", rank)


def _leaves_in_backward(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    for rank, values in enumerate(got):
        if found := not_the_drivers(case, wire, rank, [True, False, False] * len(listed(case.inputs[rank], "steps"))):
            yield found
            return
        parts = parts_of(wire, rank)
        steps = [parts[3 * number : 3 * number + 2] for number in range((len(parts) - 1) // 3)]
        for number, (first, _) in enumerate(steps):
            if not scatters(first):
                text = f"In step {number} no gradient of rank {rank} has left when backward is half over."
                yield Finding("all at the end", text, rank=rank)
        if most := max(integers(values, "left")):
            has = "has" if most == 1 else "have"
            text = f"After backward {plural(most, 'parameter')} of rank {rank} still {has} a grad."
            yield Finding("gradients kept", text, rank=rank)
        if any(integers(values, "held")):
            text = f"In the middle of backward rank {rank} still holds gradients that were complete long before."
            yield Finding("all at the end", text, rank=rank)
        first_of_all, last_of_all = integers(values, "stored")
        if last_of_all - first_of_all >= max(1, len(steps) - 1) * len(num_trained(case)):
            text = f"After step 0 rank {rank}'s optimizer has {first_of_all} entries in its lists and dicts, after "
            yield Finding(GROWS, f"{text}step {len(steps) - 1} it has {last_of_all}.", rank=rank)
        for number, (first, second) in enumerate(steps):
            inside = scatters([*first, *second])
            if len(inside) > 2 and all(waited_at_once(call) for call in inside):
                text = f"In step {number} rank {rank} waits for each reduce-scatter in backward."
                yield Finding("waits in backward", text, rank=rank)
            if any(call.waited is not None and call.waited <= inside[-1].sequence for call in inside):
                text = f"In step {number} rank {rank} waits for a reduce-scatter before backward has begun the last."
                yield Finding("waits in backward", text, rank=rank)


EXERCISE = declared(
    id="scattered_gradients",
    functions=("ScatteringOptimizer",),
    driver=drive,
    oracle=expected,
    structure=and_more(expected, kept=0, stored=[0, 0]),
    least=least_traffic,
    looks=(STEPS, _travels_once, _leaves_in_backward),
    mistakes=(
        Mistake("sum instead of mean", "The gradients are added up. The step takes their mean.",
                {"steps": trained(ranks=1)}),
        Mistake("divided twice", "start_scatter gives the mean already. Do not divide it again.",
                {"steps": trained(ranks=-1)}),
        Mistake("gradients pile up",
                "Gradients of earlier steps are added in: a step takes this step's alone.",
                {"steps": trained(again="sum")}),
        Mistake("params read twice",
                "params may be an iterator, as model.parameters() is, which can be read once: then nothing is left for "
                "super().__init__. Begin with params = list(params), and hand that on.",
                seen=_nothing_left, certain=True),
        Mistake("options lost",
                "The options in kwargs have not reached the optimizer: "
                "super().__init__(params, optimizer_cls, **kwargs).",
                {"steps": trained(plain=True)}),
        Mistake("parameters for gradients",
                "What was reduced are the parameters, and the optimizer took them for gradients: send parameter.grad.",
                {"steps": trained(parameters=True)}),
        Mistake("nothing moves",
                "No parameter has moved. Either no shard had a gradient when the inner optimizer stepped, or what it "
                "moved was never gathered. Does every hook run, does what it sends reach the shard's grad, does step "
                "find it, and does a step of your own still call start_gather?",
                {"steps": lambda case, rank: [begun(case)] * len(alone(case))}),
        Mistake("own gradients", "This rank trained only on its own gradients.", seen=own_gradients),
        Mistake("a gradient forgotten",
                "Some parameters have not moved: finish every reduce-scatter that is in flight, and give the gradient "
                "to its shard.", seen=_some_stand_still),
        Mistake("a hook on a frozen parameter",
                "A frozen parameter gets no gradient, so it takes no hook. Register hooks on those that train: the "
                "keys of self.shards.", says=("doesn't require gradient",)),
        Mistake("the loop's last parameter",
                "A lambda reads the loop's variable when it is called, and by then that is the last parameter, for "
                "every hook. A hook is given its own parameter: register self.on_gradient itself, say.",
                seen=_late, certain=True),
        Mistake("all-reduced", "Each rank needs its shard of the mean gradient, and nothing else: reduce-scatter."),
        Mistake("gradients kept",
                "Once a gradient is under way, set parameter.grad = None: the memory it takes is what this is about. "
                "Do it in a post-accumulate hook: register_hook runs before the gradient gets into .grad."),
        Mistake("all at the end",
                "Send each gradient from its own hook, when it is complete, instead of all of them after backward.",
                says=HANGS),
        Mistake(GROWS,
                "What has arrived stays in your list, so each step keeps all shards of the steps before, and finishes "
                "them again. Empty the list in step."),
        Mistake("sent twice", "More travels than is needed: each gradient once, each parameter once in a step."),
        Mistake("waits in backward",
                "Begin the reduce-scatter in the hook, keep the function that finishes it, and call that in step."),
    ),
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
)  # fmt: skip
