"""Backup workers: the first gradients make a step, late ones are dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from labkit.checks.case import Case, Got
from labkit.checks.declared import Mistake, Seen, either
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.crowds import crowd_case
from labkit.exercises.parameter_server.scripts import (
    Course,
    Script,
    answers_in,
    more_of,
    push,
    results,
    same,
    script_case,
    script_of,
    workers_of,
)
from labkit.exercises.parameter_server.server_mistakes import WITH_FUTURES, Kind, as_if
from labkit.exercises.remote_calls.drawn import drawer


def backup_case(
    name: str, seed: int, order: Sequence[tuple[int, int]], num_workers: int, needed: int, lr: float = 0.5
) -> Case:
    """Return a case of backup_workers: (worker, version it read) of each push, in order."""
    draw = drawer(seed, 3)
    script: Script = [push(worker, version, draw()) for worker, version in order]
    return script_case(name, "BackupServer", script, num_workers, lr, [needed])


def course(
    case: Case,
    combine: Callable[[list[Tensor], int], Tensor] = lambda gradients, count: torch.stack(gradients).mean(0),
    is_late: Callable[[int, int], bool] = lambda read, version: read < version,
    late_waits: bool = False,
    everybody: bool = False,
    last_waits: bool = False,
    keeps: bool = False,
) -> Course:
    """Return what happens: pushes for the version of now gather until enough are there; others are answered at once.

    Args:
        case: With a script.
        combine: Makes a change of the gradients of a step and the number of workers.
        is_late: Whether a push of this version read is late.
        late_waits: Whether late ones are answered with the next step only.
        everybody: Whether all workers are waited for.
        last_waits: Whether the worker that completes a step is answered with the next one only.
        keeps: Whether the gradients of earlier steps stay with those of the next.
    """
    script, needed = script_of(case), workers_of(case) if everybody else more_of(case)
    answers: list[tuple[tuple[int, int], ...]] = []
    updates: list[tuple[int, int, int, int]] = []
    changes: list[Tensor] = []
    gathered: list[int] = []
    earlier: list[int] = []
    waiting: list[int] = []
    for number, step in enumerate(script):
        if is_late(step["version"], len(changes)):
            waiting += [number] * late_waits
            answers.append(() if late_waits else ((number, len(changes)),))
            continue
        updates.append((len(updates), step["worker"], step["version"], len(changes)))
        gathered.append(number)
        if len(gathered) < needed:
            answers.append(())
            continue
        changes.append(combine([script[each]["gradient"] for each in earlier + gathered], workers_of(case)))
        answered = [*gathered[: len(gathered) - last_waits], *waiting]
        answers.append(tuple((each, len(changes)) for each in answered))
        earlier += gathered * keeps
        gathered, waiting = [], [number] * last_waits
    return Course(tuple(answers), tuple(updates), tuple(changes))


def _first_wrong_is_late(sign: Callable[[dict[str, Any], dict[str, Any]], bool]) -> Seen:
    """Return the mark that the first wrong answer goes to a late push: sign(what was told, what should have been)."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple) or "steps" not in got[0]:
            return False
        right = answers_in(results(case, course(case)))
        for number, (came, wanted) in enumerate(zip(answers_in(got[0]), right, strict=True)):
            if not same(came, wanted):
                version = sum(len(each) > 1 or each[0]["push"] != n for n, each in enumerate(right[:number]) if each)
                late = script_of(case)[number]["version"] < version
                return late and len(came) == len(wanted) == 1 and sign(came[0], wanted[0])
        return False

    return seen


LATE = [(0, 0), (1, 0), (2, 0), (1, 1), (0, 1), (2, 1), (2, 2), (0, 2), (1, 2), (1, 3)]


def _as_if(**otherwise: Any) -> Seen:
    return as_if(lambda case: course(case, **otherwise))


def _with_earlier(case: Case) -> Course:
    """Return what happens where each step's sum holds all earlier gradients as well, over `needed`."""
    return course(case, keeps=True, combine=lambda gradients, count: torch.stack(gradients).sum(0) / more_of(case))


EXERCISE = Kind("BackupServer", course, more_of, some_are_dropped=True).exercise(
    id="backup_workers",
    visible=(
        backup_case("3 of 3: nobody is late", 51, [(0, 0), (1, 0), (2, 0), (2, 1), (0, 1), (1, 1)], 3, 3),
        backup_case("the first 2 of 3", 52, LATE, 3, 2),
        backup_case(
            "the first 3 of 5, one is two steps late",
            53,
            [(0, 0), (1, 0), (2, 0), (0, 1), (3, 0), (3, 1), (1, 1), (4, 0), (4, 2), (2, 1), (2, 2), (0, 2)],
            5,
            3,
        ),
        crowd_case("3 of 5 at the same time, over RPC", "BackupServer", 54, 5, 6, [3], until=6),
    ),
    hints=(
        "How does the server know that a gradient is late? What does the worker tell it?",
        "The version that the worker read names the step it worked for. If it is smaller than the server's version, "
        "that step is over: return a separate Future, completed at once, and do nothing else.",
        "if version < self.version: late = Future(); late.set_result((self.version, self.weight.clone())); return "
        "late. The rest is SyncServer.push with needed in place of num_workers.",
    ),
    mistakes=(
        Mistake("late gradients are used",
                "A gradient of a step that is over was used. Compare the version it was computed from "
                "with the server's: if it is older, drop it.",
                seen=either(_as_if(is_late=lambda read, version: False),
                            _as_if(is_late=lambda read, version: read < version - 1),
                            _first_wrong_is_late(lambda came, right: bool(came["version"] > right["version"])))),
        Mistake("late workers hear of an old step",
                "A late worker is not told where the server is now: it gets the server's current version and weights, "
                "not those of the step that it worked for.",
                seen=_first_wrong_is_late(lambda came, right: bool(came["version"] <= right["version"]))),
        Mistake("only the last gradient",
                "The step took only the gradient that came last; it is the mean of the first `needed` gradients.",
                seen=_as_if(combine=lambda gradients, count: gradients[-1])),
        Mistake("gradients of earlier steps are still in it",
                "From the second step on, gradients of earlier steps are in the mean. Begin each step with an empty "
                "list.",
                seen=as_if(_with_earlier, lambda case: course(case, keeps=True))),
        Mistake("late workers wait",
                "A late worker gets its answer only with the next step. Answer it at once: it has lost enough time.",
                seen=_as_if(late_waits=True)),
        Mistake("the last one gets the future of the next step",
                "The worker that completes the step gets the new future, and waits one step too long. Keep the old "
                "one in a variable before you put a new one in its place.", seen=_as_if(last_waits=True)),
        Mistake("waits for all workers",
                "The step is taken when all workers have pushed. `needed` gradients are enough.",
                seen=_as_if(everybody=True)),
        Mistake("divided by the number of workers",
                "The sum of `needed` gradients is divided by the number of workers: the step is too short. It is the "
                "mean of those that came.",
                seen=_as_if(combine=lambda gradients, count: torch.stack(gradients).sum(0) / count)),
        Mistake("sum instead of mean",
                "The step took lr times the sum of the gradients: divide by how many there are.",
                seen=_as_if(combine=lambda gradients, count: torch.stack(gradients).sum(0))),
        *WITH_FUTURES,
    ),
)  # fmt: skip
