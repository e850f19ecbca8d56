"""The asynchronous server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from labkit.checks.case import Case, Got
from labkit.checks.declared import Mistake
from labkit.checks.values import number as number_of
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.crowds import crowd_case
from labkit.exercises.parameter_server.scripts import (
    Course,
    Script,
    answers_in,
    push,
    script_case,
    script_of,
    workers_of,
)
from labkit.exercises.parameter_server.server_mistakes import MISTAKES, Kind, as_if, one_behind, problem
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


def _refuses_stale(case: Case) -> Course:
    """Return what happens where a gradient of an older version changes nothing, and the version stays."""
    script, version = script_of(case), 0
    answers, changes = [], []
    for number, step in enumerate(script):
        fresh = step["version"] == version
        version += fresh
        answers.append(((number, version),))
        changes += [step["gradient"]] * fresh
    return Course(tuple(answers), course(case).updates, tuple(changes))


def _divided(case: Case) -> Course:
    return course(case, lambda case, number: 1 / workers_of(case))


def _uphill(case: Case) -> Course:
    return course(case, lambda case, number: -1.0)


def _before(case: Case) -> Course:
    return course(case, told=lambda push, version: version - 1)


def _gathered(case: Case) -> Course:
    """Return what happens where gradients are kept until there are as many as workers."""
    plain, count = course(case), workers_of(case)
    changes = [
        torch.stack(plain.changes[end - count : end]).sum(0) if end % count == 0 else torch.zeros_like(change)
        for end, change in enumerate(plain.changes, 1)
    ]
    return Course(plain.answers, plain.updates, tuple(changes))


def _without_rate(case: Case) -> Course:
    return course(case, lambda case, number: 1 / number_of(case.inputs[0], "lr"))


def _counts_on_from_what_was_read(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether every answer tells the version that its worker had read, and one."""
    if not isinstance(got, tuple) or "steps" not in got[0]:
        return False
    told = [answer["version"] for step in answers_in(got[0]) for answer in step]
    return told == [step["version"] + 1 for step in script_of(case)] != list(range(1, len(told) + 1))


def _stays_0(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, tuple) and bool(got[0].get("version") == 0)


EXERCISE = Kind("AsyncServer", course, answers_run_free=True).exercise(
    id="async_server",
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
    mistakes=(
        Mistake("version not counted",
                "The version stays 0: count it up with every gradient, self.version += 1.", seen=_stays_0),
        Mistake("counted on from what the worker had read",
                "The version in an answer is the one that the worker had read, and one. The version is the server's "
                "own count: every gradient raises it by one, also a stale one.", seen=_counts_on_from_what_was_read),
        Mistake("the version from before",
                "The answer tells the version from before this gradient, with the weights from after it: raise the "
                "version first, then answer.", seen=one_behind(course)),
        Mistake("answers with a Future",
                "This push answers at once: return the pair (version, weights) itself. A Future is for an answer that "
                "comes later.", seen=problem("unmarked")),
        Mistake("gradients are kept until all have pushed",
                "Weights move only when as many gradients have come as there are workers. An asynchronous server "
                "applies each on arrival, whoever else has pushed.", seen=as_if(_gathered)),
        Mistake("the learning rate left out", "The whole gradient was subtracted: take self.lr times of it.",
                seen=as_if(_without_rate)),
        Mistake("divided by the number of workers",
                "Each gradient is divided by the number of workers. Here each is applied as it is: the learning rate "
                "is chosen for that.", seen=as_if(_divided)),
        Mistake("stale gradients are dropped",
                "Gradients of older versions were not applied. An asynchronous server applies all of them, and each "
                "makes a version.",
                seen=as_if(_drops_stale, _refuses_stale)),
        Mistake("stale gradients are scaled down",
                "Gradients are divided by their staleness plus one. That is a good idea, and another exercise.",
                seen=as_if(lambda case: course(case, _by_staleness))),
        Mistake("uphill", "The weights move the wrong way: subtract lr times the gradient.", seen=as_if(_uphill)),
        Mistake("the weights from before",
                "The answer carries the weights from before this gradient. Change them first, then copy them.",
                seen=as_if(_before)),
        *MISTAKES,
    ),
)  # fmt: skip
