"""A design: in which order every stage of a pipeline works, with memory for a few microbatches only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from labkit.checks.case import Case, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import NOTHING
from labkit.checks.values import integer
from labkit.checks.wire import Wire
from labkit.exercises.pipeline.fill_stages.driver import drive
from labkit.exercises.stages.orders import (
    NO_SUCH_WORK,
    NOBODY_GOES_ON,
    NOT_A_LIST,
    ORDERS,
    WORK_LEFT_OUT,
    WORK_TWICE,
    holds_more,
    played,
    stands_still,
    wrong_work,
)

_TOO_MUCH = "holds too much"


def stages_case(num_stages: int, num_microbatches: int, most_held: int) -> Case:
    """Return a case; most_held is at least 2, and there are as many microbatches or more."""
    name = f"{num_stages} stages, {num_microbatches} microbatches, memory for {most_held}"
    inputs: Values = {"num_stages": num_stages, "num_microbatches": num_microbatches, "most_held": most_held}
    return Case(name, 1, (inputs,))


def _asked(case: Case) -> tuple[int, int, int]:
    inputs = case.inputs[0]
    return integer(inputs, "num_stages"), integer(inputs, "num_microbatches"), integer(inputs, "most_held")


def structure(case: Case) -> list[Any]:
    """Return what comes: a list of records for every stage, or in words what else."""
    return [{"orders": ORDERS}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what makes it no schedule, what never ends, and what needs more memory than there is."""
    num_stages, count, limit = _asked(case)
    orders: Any = got[0]["orders"]
    yield from wrong_work(orders, num_stages, count)
    schedule = played(orders)
    yield from stands_still(schedule)
    yield from holds_more(schedule, lambda stage: limit, _TOO_MUCH)


def turns(case: Case, got: tuple[Values, ...]) -> float:
    """Return how many turns the step takes."""
    orders: Any = got[0]["orders"]
    return played(orders).makespan


def pars(case: Case) -> Pars:
    """Return the turns of GPipe in groups that fit, of 1F1B with a warm-up that fits, and the fewest there can be.

    The fewest: with L in flight, microbatch i begins on stage 0 when i - L is back, 3P turns after that one began; of
    one round of L each takes the last stage 3 turns.

    Source: Huang et al. 2019, "GPipe"; Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN Training".
    """
    num_stages, count, limit = _asked(case)
    groups = [min(limit, count - first) for first in range(0, count, limit)]
    rounds, rest = divmod(count - 1, min(limit, num_stages))
    fewest = 3 * num_stages * (1 + rounds) + 3 * rest
    naive = sum(3 * (group + num_stages - 1) for group in groups)
    return Pars(naive, _one_f_one_b(num_stages, count, limit), fewest)


def _one_f_one_b(num_stages: int, count: int, limit: int) -> float:
    """Return the turns of 1F1B: first forwards as memory allows, then a backward and a forward by turns."""
    orders = []
    for stage in range(num_stages):
        ahead = min(num_stages - stage, limit, count)
        order = [("Forward", number) for number in range(ahead)]
        for number in range(count):
            order += [("Backward", number), ("Forward", ahead + number)][: 2 if ahead + number < count else 1]
        orders.append([{"kind": kind, "microbatch": number} for kind, number in order])
    return played(orders).makespan


EXERCISE = declared(
    id="fill_stages",
    functions=("fill_stages",),
    driver=drive,
    oracle=lambda case: [],
    structure=structure,
    looks=(find,),
    visible=(stages_case(4, 8, 8), stages_case(4, 8, 4), stages_case(4, 8, 2), stages_case(3, 7, 2)),
    given=("Forward", "Backward"),
    distributed=False,
    hints=(
        "Draw four rows, one per stage, and push microbatch 0 through. Where is the first free box that microbatch 1 "
        "could have?",
        "Simplest first: the forwards of as many microbatches as fit, then their backwards, then the next group. Then "
        "ask what a stage should do as soon as a gradient has arrived: that backward frees memory.",
        "Play it turn by turn. Record when each stage is free and when each forward and backward is done. In each "
        "turn every free stage runs its next backward if that can run; else its next forward, if that can run and it "
        "holds fewer than most_held. Write down what ran.",
    ),
    mistakes=(
        Mistake(NOTHING, "fill_stages must return a list with one list for each stage."),
        NOT_A_LIST,
        NO_SUCH_WORK,
        WORK_TWICE,
        WORK_LEFT_OUT,
        NOBODY_GOES_ON,
        Mistake(_TOO_MUCH,
                "A stage holds a microbatch from its forward until its backward is done. With the limit reached, the "
                "next thing it runs must be a backward."),
    ),
    challenge=Challenge("turns", turns, pars, plan="orders", reference="1F1B", best="lower bound"),
)  # fmt: skip
