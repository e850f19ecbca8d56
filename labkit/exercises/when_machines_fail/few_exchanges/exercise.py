"""Few exchanges: workers that come and go train apart, and reach a loss with few bytes (DiLoCo)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.compare import listing
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING
from labkit.checks.values import integer, listed, number
from labkit.checks.wire import Wire
from labkit.exercises.when_machines_fail.few_exchanges.crews import CREWS
from labkit.exercises.when_machines_fail.few_exchanges.driver import beginning, crew_of, drive, recipe_of
from labkit.failures.apart import Crew, Recipe, Worker, kilobytes

ROUNDS = [
    [True, True, True],
    [True, False, True],
    [True, True, True],
    [False, True, True],
]
"""Which workers stay to the end of each round."""


def crew_case(name: str, seeds: tuple[int, ...], seed: int, rate: float = 0.7, momentum: float = 0.9) -> Case:
    """Return a case of few_exchanges.

    Args:
        name: Of a crew.
        seeds: Draw the data on which a recipe is scored; an answer does not see them.
        seed: Draws the data of the rounds that the functions are tried in.
        rate: Of the outer SGD there.
        momentum: Of the outer SGD there.
    """
    crew = CREWS[name].crew
    inputs: dict[str, Value] = {
        "there": ROUNDS, "seed": seed, "steps": 3, "rate": rate, "momentum": momentum,
        "num_workers": crew.num_workers, "kills": [[each.rank, each.step] for each in crew.failures],
        "away": crew.away, "goal": crew.goal,
    }  # fmt: skip
    return Case(name, 1, (inputs,), {"seeds": list(seeds)})


@lru_cache(maxsize=128)
def _replayed(seed: int, steps: int, rate: float, momentum: float, mistake: str) -> tuple[Tensor, ...]:
    """Return the shared weights after each round, as they are where a mistake was made; "" for none."""
    shared, kept, workers = beginning({"there": ROUNDS, "seed": seed})
    found = []
    for there in ROUNDS:
        moves = []
        for worker, stays in zip(workers, there, strict=True):
            if stays:
                moves.append(_inner(worker, shared, steps, mistake))
            elif mistake == _ABSENT:
                moves.append(torch.zeros_like(shared))
        average = torch.stack(moves).sum(0) if mistake == _ADDED else torch.stack(moves).mean(0)
        if mistake == _SIGN:
            average = -average
        if mistake == _PLAIN:
            shared = shared + average
        elif mistake == _NO_MOMENTUM:
            shared = shared + rate * average
        else:
            kept = (0.0 if mistake == _FRESH else momentum) * kept + (
                1 - momentum if mistake == _DAMPED else 1.0
            ) * average
            shared = shared + rate * (kept if mistake == _HEAVY else average + momentum * kept)
        found.append(torch.zeros_like(shared) if mistake == _NOTHING else shared)
    return tuple(found)


def _inner(worker: Worker, shared: Tensor, steps: int, mistake: str) -> Tensor:
    begins = worker.weights.detach().clone() if mistake == _STALE else shared
    own = worker.weights.detach().clone()
    with torch.no_grad():
        worker.weights.copy_(begins)
    if mistake == _MOMENTS:
        worker.optimizer.state.clear()
    if mistake == _ONCE:
        worker.optimizer.zero_grad()
    for _ in range(steps):
        if mistake not in (_ADD_UP, _ONCE):
            worker.optimizer.zero_grad()
        torch.autograd.backward(worker.loss())
        worker.optimizer.step()
    if mistake == _WHOLE:
        return worker.weights.detach().clone()
    return worker.weights.detach() - (own if mistake == _FROM_OWN else shared)


def _ways(case: Case, mistake: str) -> tuple[Tensor, ...]:
    inputs = case.inputs[0]
    return _replayed(
        integer(inputs, "seed"), integer(inputs, "steps"), number(inputs, "rate"), number(inputs, "momentum"), mistake
    )


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield the first round after which the weights are wrong, why this is no recipe, or that it never arrives."""
    shared, right = got[0]["shared"], _ways(case, "")
    if not isinstance(shared, list) or len(shared) != len(right):
        yield Finding(_FORM, f"outer_step returned {shared!s:.80}, expected shared weights and momentum.")
        return
    for place, (came, wanted) in enumerate(zip(shared, right, strict=True)):
        if not _same(came, wanted):
            away = [worker for worker, stays in enumerate(ROUNDS[place]) if not stays]
            who = f", in which worker {away[0]} is away" if away else ""
            text = f"The shared weights are wrong after round {place + 1} of {len(right)}{who}."
            shown = listing(came) if isinstance(came, Tensor) else f"{came!s:.40}"
            name = _named(case, shared) or ("" if got[0]["same_optimizer"] else _MOMENTS)
            yield Finding(name, text, listing(wanted), shown)
            return
    recipe = recipe_of(got[0]["recipe"])
    if recipe is None:
        yield Finding(_NO_RECIPE, f"plan_rounds: {got[0]['recipe']!s:.120}.")
    elif _sent(*_about(case), recipe) is None:
        crew, _ = _about(case)
        yield Finding(_NEVER, f"With {recipe}, the loss does not come down to {crew.goal} in time.")


def _same(came: Any, wanted: Tensor) -> bool:
    return (
        isinstance(came, Tensor)
        and came.shape == wanted.shape
        and bool(((came.double() - wanted).abs() <= 1e-9 * wanted.abs().max()).all())
    )


def _named(case: Case, shared: list[Any]) -> str:
    """Return the mistake that gives these weights."""
    for mistake in (
        _STALE, _ADD_UP, _ONCE, _FROM_OWN, _FRESH, _MOMENTS, _ABSENT, _SIGN, _PLAIN, _NO_MOMENTUM, _HEAVY, _ADDED,
        _DAMPED, _NOTHING, _WHOLE,
    ):  # fmt: skip
        if all(_same(came, wanted) for came, wanted in zip(shared, _ways(case, mistake), strict=True)):
            return mistake
    return ""


def _about(case: Case) -> tuple[Crew, tuple[int, ...]]:
    return crew_of(case.inputs[0]), tuple(int(each) for each in listed(case.about, "seeds"))


@lru_cache(maxsize=256)
def _sent(crew: Crew, seeds: tuple[int, ...], recipe: Recipe) -> float | None:
    return kilobytes(crew, recipe, seeds)


def score(case: Case, got: tuple[Values, ...]) -> float:
    """Return the kilobytes that are sent until the goal is reached."""
    recipe = recipe_of(got[0]["recipe"])
    assert recipe is not None
    found = _sent(*_about(case), recipe)
    assert found is not None
    return found


def pars(case: Case) -> Pars:
    """Return what others send with this crew: plain averages, DiLoCo, the best found, each with rounds of its best."""
    crew, seeds = _about(case)
    (of,) = [each for each in CREWS.values() if each.crew == crew]
    sent = [_sent(crew, seeds, each) for each in (of.averages, of.diloco, of.best)]
    naive, paper, best = (math.inf if each is None else each for each in sent)
    return Pars(naive, paper, min(best, paper))


_FORM, _STALE, _MOMENTS, _ABSENT, _SIGN, _PLAIN, _NO_MOMENTUM, _HEAVY, _NO_RECIPE, _NEVER, _ADD_UP = (
    "not a pair", "stale weights", "inner moments lost", "the absent are averaged", "the wrong direction",
    "weights are averaged", "no momentum", "momentum without Nesterov", "no recipe", "the goal is never reached",
    "gradients add up",
)  # fmt: skip
_ADDED, _DAMPED, _NOTHING = "moves added up", "momentum averaged", "nothing moves"
_WHOLE = "weights for their change"
_ONCE, _FROM_OWN, _FRESH = "gradients add up in a round", "moved from its own weights", "a momentum that forgets"

EXERCISE = declared(
    id="few_exchanges",
    functions=("inner_steps", "outer_step", "plan_rounds"),
    driver=drive,
    oracle=lambda case: [],
    structure=lambda case: [{"shared": ANYTHING, "recipe": ANYTHING, "same_optimizer": bool}],
    looks=(find,),
    mistakes=(
        Mistake(_FORM, "outer_step returns two tensors: the shared weights and the momentum."),
        Mistake(_STALE, "Each worker went on from its own weights. Who was away has old ones, and everybody else has "
                "moved elsewhere, too: begin every round from the shared weights."),
        Mistake(_MOMENTS, "AdamW's moments were lost at the end of each round. worker.optimizer keeps them: take its "
                "steps, and make no new optimizer."),
        Mistake(_ADD_UP, "backward() adds to the gradient of the step before. Begin each step with "
                "worker.optimizer.zero_grad()."),
        Mistake(_ONCE, "backward() adds to the gradient of the step before, also within a round: call zero_grad() "
                "before every step."),
        Mistake(_WHOLE, "inner_steps returns how the weights changed, after minus before, and not the weights."),
        Mistake(_FROM_OWN, "The change counts from the shared weights, where the round began, and not from what the "
                "worker had from its last round."),
        Mistake(_FRESH, "Each round begins with no momentum. Take the one that you returned last: beta * momentum + "
                "the new average. A new torch.optim.SGD has none."),
        Mistake(_ABSENT, "Who is away has moved by nothing, and was averaged in: divide by how many are there."),
        Mistake(_SIGN, "The shared weights move away from the workers. A move is already where the weights should go; "
                "a gradient is its opposite."),
        Mistake(_PLAIN, "This is the average of the workers' weights. Take the average move as a gradient instead: a "
                "step of SGD with this rate and this momentum."),
        Mistake(_NO_MOMENTUM, "The momentum is left out: moves of former rounds go on counting."),
        Mistake(_HEAVY, "This is SGD's usual momentum. Nesterov's adds this round's average to momentum times the new "
                "momentum."),
        Mistake(_ADDED, "The moves are added up. The gradient is minus their average: divide by how many there are."),
        Mistake(_DAMPED, "You average gradients into the momentum. torch's SGD adds them up: momentum = beta * "
                "momentum + gradient."),
        Mistake(_NOTHING, "The shared weights never move: after minus before is 0. Either a worker trains in shared "
                "itself, which changes, too, or in a new tensor that worker.optimizer does not know. Copy shared into "
                "worker.weights."),
        Mistake(_NO_RECIPE, "Return Recipe(steps=20, rate=0.7, momentum=0.9), with a whole number of steps."),
        Mistake(_NEVER, "Each class of the data is some worker's alone. If rounds are so long that a worker is always "
                "killed in one, its data never counts. If the rate is small, the weights move too little."),
    ),
    visible=(crew_case("three workers", (0, 1), 31), crew_case("four workers", (2, 3), 32, 0.9, 0.5)),
    distributed=False,
    seconds=90.0,
    hints=(
        "Where does each worker begin a round, and who keeps AdamW's moments? And what does SGD do with a gradient "
        "that points the same way again and again?",
        "inner_steps copies the shared weights into the worker's, takes the steps with worker.optimizer, and returns "
        "the difference. outer_step averages the moves of those who are there, and takes a step of SGD with Nesterov's "
        "momentum, whose gradient is minus that average.",
        "average = torch.stack([each for each in moves if each is not None]).mean(0); momentum = beta * momentum + "
        "average; shared = shared + rate * (average + beta * momentum). plan_rounds: try DiLoCo's 0.7 and 0.9, and a "
        "few lengths of a round, with kilobytes(crew, Recipe(steps, 0.7, 0.9)).",
    ),
    challenge=Challenge("kB", score, pars, reference="DiLoCo"),
)  # fmt: skip
