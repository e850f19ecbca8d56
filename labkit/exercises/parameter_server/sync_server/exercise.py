"""The synchronous server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Got
from labkit.checks.judged import Mistake
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.crowds import crowd_case, is_crowd
from labkit.exercises.parameter_server.scripts import (
    Course,
    Script,
    as_if,
    push,
    script_case,
    script_of,
    workers_of,
)
from labkit.exercises.parameter_server.server_mistakes import server_exercise
from labkit.exercises.remote_calls.drawn import drawer

Combine = Callable[[list[Tensor]], Tensor]


def sync_case(name: str, seed: int, orders: Sequence[Sequence[int]], lr: float, size: int = 3) -> Case:
    """Return a case of sync_server: for each step, the workers in the order in which they push."""
    draw = drawer(seed, size)
    script: Script = [push(worker, step, draw()) for step, order in enumerate(orders) for worker in order]
    return script_case(name, "SyncServer", script, len(orders[0]), lr)


def mean(gradients: list[Tensor]) -> Tensor:
    """Return the mean over gradients."""
    return torch.stack(gradients).mean(0)


def course(
    case: Case, combine: Combine = mean, told: Callable[[int, int], int] = lambda push, version: version
) -> Course:
    """Return what happens: every so many pushes make a step, and the last of them answers all."""
    if is_crowd(case):
        return Course((), (), ())
    script, count = script_of(case), workers_of(case)
    answers: list[tuple[tuple[int, int], ...]] = []
    changes = []
    for number in range(len(script)):
        done, left = divmod(number + 1, count)
        group = range(number + 1 - count, number + 1)
        answers.append(() if left else tuple((each, done) for each in group))
        if not left:
            changes.append(combine([script[each]["gradient"] for each in group]))
    updates = [(n, step["worker"], step["version"], n // count) for n, step in enumerate(script)]
    return Course(tuple(answers), tuple(updates), tuple(changes), told)


def _kept(case: Case) -> Course:
    """Return what happens if gradients of earlier steps stay in the sum."""
    script, count, plain = script_of(case), workers_of(case), course(case)
    changes = [
        torch.stack([each["gradient"] for each in script[:end]]).sum(0) / count
        for end in range(count, len(script) + 1, count)
    ]
    return Course(plain.answers, plain.updates, tuple(changes))


def _answered(pick: Callable[[int, int, int], bool]) -> Callable[[Case, Got, Wire], bool]:
    """Return whether the first answers come to whom pick(step, push, number of workers) says."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple) or is_crowd(case) or "steps" not in got[0]:
            return False
        count = workers_of(case)
        came = [{each["push"] for each in step} for step in cast(Any, got[0]["steps"])[:count]]
        return count > 1 and came == [{p for p in range(n + 1) if pick(n, p, count)} for n in range(count)]

    return seen


EXERCISE = server_exercise(
    id="sync_server",
    server="SyncServer",
    rule=course,
    gradients_a_version=workers_of,
    visible=(
        sync_case("3 workers, one step", 21, [[0, 1, 2]], 0.5),
        sync_case("2 workers, 3 steps", 22, [[0, 1], [1, 0], [0, 1]], 0.1),
        sync_case("4 workers, 3 steps, in changing order", 23, [[2, 0, 3, 1], [1, 3, 0, 2], [0, 1, 2, 3]], 0.3),
        sync_case("one worker", 24, [[0], [0]], 1.0),
        crowd_case("5 workers at the same time, over RPC", "SyncServer", 25, 5, 4),
    ),
    hints=(
        "What must be kept between two pushes of one step? And what must be new when the next step begins?",
        "Keep the gradients that have come, and one Future that all pushes of this step return. The push that finds "
        "num_workers gradients takes the step, puts an empty list and a new Future in place, and completes "
        "the old one.",
        "with self.lock: note the Update; self.gradients.append(gradient); future = self.future; if it was the last: "
        "self.weight -= self.lr / self.num_workers * sum(self.gradients), version up, new list and Future, "
        "future.set_result((self.version, self.weight.clone())). After the lock: return future.",
    ),
    mistakes=(
        Mistake(
            "answers everybody at once",
            "Each push is answered when it comes. It must be answered when the last gradient of the step is in.",
            _answered(lambda now, pushed, count: now == pushed),
        ),
        Mistake(
            "only the last one is answered",
            "The worker that completes the step gets its answer, the others wait for ever: all pushes of a step must "
            "return the same future.",
            _answered(lambda now, pushed, count: now == pushed == count - 1),
        ),
        Mistake(
            "the last one gets the future of the next step",
            "The worker that completes the step is handed the new future, and waits for a step too many. Keep the old "
            "one in a variable before you put a new one in its place.",
            _answered(lambda now, pushed, count: now == count - 1 and pushed < now),
        ),
        Mistake(
            "sum called mean",
            "The step took lr times the sum of the gradients: divide by the number of workers.",
            as_if(course, lambda case: course(case, lambda gradients: torch.stack(gradients).sum(0))),
        ),
        Mistake(
            "only the last gradient",
            "The step took the gradient of the worker that came last; all of them belong in the mean.",
            as_if(course, lambda case: course(case, lambda gradients: gradients[-1])),
        ),
        Mistake(
            "gradients of earlier steps are still in it",
            "From the second step on, gradients of earlier steps are in the sum. Begin each step with an empty one.",
            as_if(course, _kept),
        ),
        Mistake(
            "the weights from before the step",
            "The answer carries the weights as they were before the step. Change them first, then answer.",
            as_if(course, lambda case: course(case, told=lambda push, version: version - 1)),
        ),
    ),
)
