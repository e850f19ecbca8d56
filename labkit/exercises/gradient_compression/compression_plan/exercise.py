"""A compression plan: what travels of each layer in each step, within a budget of bytes, for the lowest loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from labkit.checks.case import Case, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import NOTHING, Each
from labkit.checks.values import integer, listed
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.compression_plan.driver import drive
from labkit.exercises.gradient_compression.compression_plan.families import FAMILIES, QSPARSE, naive, plan_of
from labkit.plans.compressed_steps import BITS, Plan, final_loss, packet_bytes, plan_bytes
from labkit.words import plural

NO_LAYER, TOO_MANY_BYTES = "not one pair a layer", "over the budget"


def plan_case(name: str, shapes: Sequence[tuple[int, int]], num_steps: int, share: float, seed: int) -> Case:
    """Return a case.

    Args:
        name: What is special about it.
        shapes: Inputs and outputs of each layer.
        num_steps: How long the training is.
        share: The budget, as a share of all gradients in float32.
        seed: Draws tasks, weights and batches.
    """
    sizes = [first * second for first, second in shapes]
    budget = int(share * 4 * sum(sizes) * num_steps)
    inputs: Values = {
        "sizes": [*sizes], "num_steps": num_steps, "budget_bytes": budget, "shapes": [[*shape] for shape in shapes],
    }  # fmt: skip
    return Case(f"{name}, {num_steps} steps, {budget:,} bytes", 1, (inputs,), {"draws": seed % 2**31})


def structure(case: Case) -> list[Any]:
    """Return what results look like: for each step, for each layer, two whole numbers."""
    return [{"plan": Each(Each(Each(int, least=2, most=2)), most=integer(case.inputs[0], "num_steps"))}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what makes a plan no plan: steps or layers that are missing, entries that do not exist, too many bytes."""
    sizes, steps = listed(case.inputs[0], "sizes"), integer(case.inputs[0], "num_steps")
    plan = listed(got[0], "plan")
    if len(plan) != steps:
        yield Finding("another number of steps", f"The plan has {plural(len(plan), 'step')}, the training {steps}.")
    for number, step in enumerate(plan):
        if len(step) != len(sizes):
            yield Finding(NO_LAYER, f"Step {number} has {plural(len(step), 'pair')} for {len(sizes)} layers.")
        for layer, ((entries, bits), size) in enumerate(zip(step, sizes, strict=True)):
            where = f"Step {number}, layer {layer}"
            if bits not in BITS or isinstance(bits, bool):
                yield Finding("no such width", f"{where}: {bits} bits; an entry can have {', '.join(map(str, BITS))}.")
            if not isinstance(entries, int):
                yield Finding("a share of entries", f"{where}: {entries} entries; a plan has whole numbers.")
            if not 0 <= entries <= size:
                yield Finding("more than there is", f"{where}: {entries} entries; the layer has {size}.")
    budget, sent = integer(case.inputs[0], "budget_bytes"), plan_bytes(plan, sizes)
    if sent > budget:
        places = sum(packet_bytes(entries, bits, size) - -(-entries * bits // 8) for step in plan
                     for (entries, bits), size in zip(step, sizes, strict=True))  # fmt: skip
        yield Finding(
            "places not counted" if sent - places <= budget else TOO_MANY_BYTES,
            f"The plan sends {sent:,} bytes, {places:,} of them places and scales.",
            f"at most {budget:,} bytes",
            f"{sent:,} bytes",
        )


def score(case: Case, got: tuple[Values, ...]) -> float:
    """Return the loss after the training."""
    return _loss(case, [[tuple(pair) for pair in step] for step in listed(got[0], "plan")])


def pars(case: Case) -> Pars:
    """Return what others reach: the same share of all layers in every step, Qsparse-local-SGD, and the best found."""
    inputs = case.inputs[0]
    steps, budget = integer(inputs, "num_steps"), integer(inputs, "budget_bytes")
    return _pars(tuple(listed(inputs, "sizes")), _shapes(case), steps, budget, integer(case.about, "draws"))


@cache
def _pars(sizes: tuple[int, ...], shapes: tuple[tuple[int, int], ...], num_steps: int, budget: int, seed: int) -> Pars:
    def loss(plan: Plan) -> float:
        return _trained(tuple(map(tuple, plan)), shapes, seed)

    losses = [loss(plan_of(each, sizes, num_steps, budget)) for each in (QSPARSE, *FAMILIES)]
    return Pars(loss(naive(sizes, num_steps, budget)), losses[0], min(losses))


def _loss(case: Case, plan: Sequence[Sequence[Any]]) -> float:
    return _trained(tuple(map(tuple, plan)), _shapes(case), integer(case.about, "draws"))


@cache
def _trained(plan: tuple[Any, ...], shapes: tuple[tuple[int, int], ...], seed: int) -> float:
    return final_loss(plan, shapes, seed)


def _shapes(case: Case) -> tuple[tuple[int, int], ...]:
    return tuple((first, second) for first, second in listed(case.inputs[0], "shapes"))


EXERCISE = declared(
    id="compression_plan",
    functions=("compression_plan",),
    driver=drive,
    oracle=lambda case: [],
    structure=structure,
    looks=(find,),
    visible=(
        plan_case("three layers", [(20, 64), (64, 64), (64, 8)], 60, 0.04, 1),
        plan_case("three layers, half of the bytes", [(20, 64), (64, 64), (64, 8)], 60, 0.02, 2),
        plan_case("wide and short", [(12, 96), (96, 24), (24, 4)], 40, 0.05, 3),
    ),
    distributed=False,
    hints=(
        "Which bytes of a packet are not values? How much of the budget goes into places, and when does a bit for "
        "each entry beat four bytes for each entry that is sent?",
        "Begin with the naive plan, and use 8 bits or 4: the residual keeps what rounding loses. Then ask whether a "
        "layer must send in every step: what waits is not lost.",
        "most_entries(num_bytes, 4, size) says how much fits. Give each layer its share of the budget in every other "
        "step, and [0, 4] in between.",
    ),
    mistakes=(
        Mistake(NOTHING, "compression_plan must return the list."),
        Mistake("another number of steps",
                "The plan has one list for each of the num_steps steps, and in it a pair for each layer; a step that "
                "sends nothing has pairs with 0 entries."),
        Mistake(NO_LAYER, "Each step has one pair (entries, bits) per layer."),
        Mistake("no such width",
                "An entry has 4, 8, 16 or 32 bits. In a pair the number of entries comes first: (entries, bits)."),
        Mistake("a share of entries",
                "Entries says how many travel, a whole number: round the share of the layer's size down."),
        Mistake("more than there is", "Entries are a number between 0 and the layer's size."),
        Mistake("places not counted",
                "The values alone would fit, but places and scales travel too. packet_bytes counts them."),
        Mistake(TOO_MANY_BYTES, "plan_bytes(plan, sizes) says what a plan sends over all steps."),
    ),
    challenge=Challenge("loss", score, pars, plan="plan", reference="Qsparse-local-SGD"),
)  # fmt: skip
