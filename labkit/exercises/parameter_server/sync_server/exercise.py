"""The synchronous server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from labkit.checks.case import Case, Got
from labkit.checks.declared import Mistake, Seen
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.crowds import crowd_case, is_crowd
from labkit.exercises.parameter_server.scripts import (
    Course,
    Rule,
    Script,
    answers_in,
    pull,
    push,
    results,
    same,
    script_case,
    script_of,
    workers_of,
)
from labkit.exercises.parameter_server.server_mistakes import WITH_FUTURES, Kind, as_if, one_behind
from labkit.exercises.remote_calls.drawn import drawer

Combine = Callable[[list[Tensor]], Tensor]


def sync_case(
    name: str, seed: int, orders: Sequence[Sequence[int]], lr: float, size: int = 3, pulled: bool = False
) -> Case:
    """Return a case of sync_server.

    Args:
        name: What is special about it.
        seed: Draws gradients.
        orders: For each step, the workers in the order in which they push.
        lr: Learning rate.
        size: Of the weights.
        pulled: Whether somebody asks for the weights before the last push of each step.
    """
    draw = drawer(seed, size)
    script: Script = []
    for step, order in enumerate(orders):
        for worker in order:
            script += [pull()] * (pulled and worker == order[-1])
            script.append(push(worker, step, draw()))
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
    changes: list[Tensor] = []
    group: list[int] = []
    for number, step in enumerate(script):
        if step["op"] == "pull":
            answers.append(((number, len(changes)),))
            continue
        group.append(number)
        if len(group) < count:
            answers.append(())
            continue
        changes.append(combine([script[each]["gradient"] for each in group]))
        answers.append(tuple((each, len(changes)) for each in group))
        group = []
    updates = [(n, step["worker"], step["version"], n // count) for n, step in enumerate(_pushes(case))]
    return Course(tuple(answers), tuple(updates), tuple(changes), told)


def _pushes(case: Case) -> Script:
    return [step for step in script_of(case) if step["op"] == "push"]


def _kept(case: Case) -> Course:
    """Return what happens if gradients of earlier steps stay in the sum."""
    pushes, count, plain = _pushes(case), workers_of(case), course(case)
    changes = [
        torch.stack([each["gradient"] for each in pushes[:end]]).sum(0) / count
        for end in range(count, len(pushes) + 1, count)
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
        places = [number for number, step in enumerate(script_of(case)) if step["op"] == "push"]
        steps = [listed(got[0], "steps")[number] for number in places[:count]]
        first = [{places.index(each["push"]) for each in step} for step in steps]
        return first == [{push for push in range(now + 1) if when(now, push, count)} for now in range(count)]

    return seen


def _versions(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether every answer tells as many versions as gradients went into it."""
    if not isinstance(got, tuple) or "steps" not in got[0]:
        return False
    told = [answer for step in answers_in(got[0]) for answer in step]
    right = [answer for step in answers_in(results(case, course(case))) for answer in step]
    count = workers_of(case)
    return count > 1 and same(told, [{**each, "version": each["version"] * count} for each in right])


def _first_wrong(sign: Callable[[Case, dict[str, Any], list[Any], list[Any]], bool]) -> Seen:
    """Return the mark that the first step with wrong answers bears: sign(case, step, what came, what should have)."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple) or "steps" not in got[0]:
            return False
        steps = zip(script_of(case), answers_in(got[0]), answers_in(results(case, course(case))), strict=True)
        return next((sign(case, *step) for step in steps if not same(*step[1:])), False)

    return seen


def _before_the_last(case: Case, step: dict[str, Any], came: list[Any], right: list[Any]) -> bool:
    """Return whether the worker with the highest number was answered, and was not the last of the step."""
    return bool(step["worker"] == workers_of(case) - 1 and came and not right)


MISTAKES = (
    Mistake("a version for each gradient",
            "The version went up with every gradient. A step has one for each worker and makes one version.",
            seen=_versions),
    Mistake("the version from before the step",
            "The answer tells the version from before the step, with the weights from after it: raise the version "
            "first, then answer.", seen=one_behind(course)),
    Mistake("the worker with the highest number takes the step",
            "The step is taken when the worker with the highest number pushes. Workers push in any order: whoever "
            "brings the last gradient takes the step, so count those that have come.",
            seen=_first_wrong(_before_the_last)),
    Mistake("the step is taken piece by piece",
            "Weights change before the last push of a step: pull() gave some that are half changed. Keep the "
            "gradients, and let the last push subtract lr times their mean.",
            seen=_first_wrong(lambda case, step, came, right: bool(step["op"] == "pull"))),
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
        sync_case("2 workers, 3 steps, pull() in between", 22, [[0, 1], [1, 0], [0, 1]], 0.1, pulled=True),
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
