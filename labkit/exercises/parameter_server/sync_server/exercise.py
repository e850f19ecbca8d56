"""The synchronous server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from labkit.checks.case import Case, Got
from labkit.checks.declared import Mistake, Seen
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.crowds import crowd_case, is_crowd
from labkit.exercises.parameter_server.scripts import Course, Rule, Script, push, script_case, script_of, workers_of
from labkit.exercises.parameter_server.server_mistakes import WITH_FUTURES, Kind, as_if
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


def _combined(combine: Combine) -> Rule:
    return lambda case: course(case, combine)


def _before(case: Case) -> Course:
    return course(case, told=lambda push, version: version - 1)


def _answered(when: Callable[[int, int, int], bool]) -> Seen:
    """Return the mark that pushes of the first step are answered so: when(push that came now, push, workers)."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        count = workers_of(case)
        if not isinstance(got, tuple) or "steps" not in got[0] or is_crowd(case) or count == 1:
            return False
        first = [{each["push"] for each in step} for step in listed(got[0], "steps")[:count]]
        return first == [{push for push in range(now + 1) if when(now, push, count)} for now in range(count)]

    return seen


MISTAKES = (
    Mistake("answers everybody at once",
            "Each push is answered when it arrives. It must be answered when the step's last gradient has arrived.",
            seen=_answered(lambda now, push, count: now == push)),
    Mistake("only the last one is answered",
            "The worker that completes the step gets its answer, the others wait forever: all pushes of a step must "
            "return the same future.", seen=_answered(lambda now, push, count: now == push == count - 1)),
    Mistake("nobody is answered",
            "No push of the first step was answered. Keep each gradient that arrives, and when the step's last one is "
            "there, complete the future that all its pushes return: set_result.",
            seen=_answered(lambda now, push, count: False)),
    Mistake("the last one gets the future of the next step",
            "The worker that completes the step gets the new future, and waits one step too long. Keep the old one in "
            "a variable before you put a new one in its place.",
            seen=_answered(lambda now, push, count: now == count - 1 and push < now)),
    Mistake("sum instead of mean", "The step took lr times the sum of the gradients: divide by the number of workers.",
            seen=as_if(_combined(lambda gradients: torch.stack(gradients).sum(0)))),
    Mistake("only the last gradient",
            "The step took only the gradient of the last worker; all of them belong in the mean.",
            seen=as_if(_combined(lambda gradients: gradients[-1]))),
    Mistake("gradients of earlier steps are still in it",
            "From the second step on, gradients of earlier steps are in the sum. Begin each step with an empty one.",
            seen=as_if(_kept)),
    Mistake("the weights from before the step",
            "The answer carries the weights as they were before the step. Change them first, then answer.",
            seen=as_if(_before)),
    *WITH_FUTURES,
)  # fmt: skip

EXERCISE = Kind("SyncServer", course, workers_of).exercise(
    id="sync_server",
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
    mistakes=MISTAKES,
)
