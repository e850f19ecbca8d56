"""The asynchronous server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from labkit.checks.case import Case, Values
from labkit.exercises.parameter_server.crowds import crowd_case, is_crowd
from labkit.exercises.parameter_server.scripts import (
    Course,
    Rule,
    Script,
    first_of,
    push,
    script_case,
    script_of,
    workers_of,
)
from labkit.exercises.parameter_server.server_mistakes import server_exercise
from labkit.exercises.remote_calls.drawn import drawer


def async_case(name: str, seed: int, order: Sequence[tuple[int, int]], num_workers: int, lr: float) -> Case:
    """Return a case of async_server: (worker, version it read) of each push, in order."""
    draw = drawer(seed, 4)
    script: Script = [push(worker, version, draw()) for worker, version in order]
    return script_case(name, "AsyncServer", script, num_workers, lr)


def course(
    case: Case,
    scale: Callable[[Case, int], float] = lambda case, number: 1.0,
    told: Callable[[int, int], int] = lambda push, version: version,
) -> Course:
    """Return what happens: the k-th push makes version k, and is told so at once."""
    if is_crowd(case):
        return Course((), (), ())
    script = script_of(case)
    answers = tuple(((number, number + 1),) for number in range(len(script)))
    updates = tuple((n, step["worker"], step["version"], n) for n, step in enumerate(script))
    changes: tuple[Tensor, ...] = tuple(scale(case, n) * step["gradient"] for n, step in enumerate(script))
    return Course(answers, updates, changes, told)


def _by_staleness(case: Case, number: int) -> float:
    return float(1 / (1 + number - script_of(case)[number]["version"]))


def _drops_stale(case: Case) -> Course:
    plain = course(case)
    changes = [
        change if step["version"] == number else torch.zeros_like(change)
        for number, (step, change) in enumerate(zip(script_of(case), plain.changes, strict=True))
    ]
    return Course(plain.answers, plain.updates, tuple(changes))


_NO_VERSION = "version not counted"
MISTAKES = {
    _NO_VERSION: "The version stays 0: count it up with every gradient, self.version += 1.",
    "divided by the number of workers": (
        "Each gradient is divided by the number of workers. Here each is applied as it is: the learning rate is "
        "chosen for that."
    ),
    "stale gradients are dropped": "Gradients of older versions were not applied. An asynchronous server applies all "
    "of them.",
    "stale gradients are scaled down": "Gradients are divided by their staleness plus one. That is a good idea, and "
    "another exercise.",
    "uphill": "The weights move the wrong way: subtract lr times the gradient.",
    "the weights from before": "The answer carries the weights from before this gradient. Change them first, then "
    "copy them.",
}
WAYS: dict[str, Rule] = {
    "divided by the number of workers": lambda case: course(case, lambda case, number: 1 / workers_of(case)),
    "stale gradients are dropped": _drops_stale,
    "stale gradients are scaled down": lambda case: course(case, _by_staleness),
    "uphill": lambda case: course(case, lambda case, number: -1.0),
    "the weights from before": lambda case: course(case, told=lambda push, version: version - 1),
}


def _named(case: Case, came: Values) -> str:
    return _NO_VERSION if came["version"] == 0 else first_of(WAYS)(case, came)


EXERCISE = server_exercise(
    id="async_server",
    server="AsyncServer",
    rule=course,
    gradients_a_version=lambda case: 1,
    answers_run_free=True,
    future=False,
    visible=(
        async_case("one worker, 3 pushes", 31, [(0, 0), (0, 1), (0, 2)], 1, 0.5),
        async_case("3 workers, some of them stale", 32, [(0, 0), (1, 0), (0, 1), (2, 0), (1, 2)], 3, 0.2),
        crowd_case("6 workers at the same time, over RPC", "AsyncServer", 33, 6, 5),
    ),
    hints=(
        "Four things happen in a push. Which of them may another push see half done?",
        "None of them. Note the Update, change the weights, count the version up and copy the weights, all inside one "
        "`with self.lock:`.",
        "self.weight -= self.lr * gradient; self.version += 1; return self.version, self.weight.clone()",
    ),
    named=_named,
    mistakes=MISTAKES,
)
