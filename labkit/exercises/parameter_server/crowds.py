"""Cases in which all workers push at once, on virtual ranks: nothing may be lost, and answers must fit together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.structure import Each, OneOf
from labkit.checks.values import integer, listed, tensor
from labkit.exercises.parameter_server.scripts import TOLERANCE, state_structure
from labkit.exercises.remote_calls.drawn import drawer


def crowd_case(
    name: str, server: str, seed: int, num_workers: int, num_pushes: int, more: Sequence[int] = (), *, until: int = 0
) -> Case:
    """Return a case in which every worker pushes that many gradients, as fast as it can.

    Args:
        name: In words.
        server: The learner's class.
        seed: Draws gradients.
        num_workers: Workers.
        num_pushes: Gradients that each worker has.
        more: Further arguments of the server.
        until: The version at which workers stop; 0 lets them push all.
    """
    draw = drawer(seed, 5)
    gradients: list[Value] = [[draw() for _ in range(num_pushes)] for _ in range(num_workers)]
    inputs: dict[str, Value] = {
        "server": server,
        "weight": draw(),
        "num_workers": num_workers,
        "lr": 0.25,
        "more": list(more),
        "script": [],
        "crowd": gradients,
        "until": until or num_workers * num_pushes,
    }
    return Case(name, 1, (inputs,))


def is_crowd(case: Case) -> bool:
    """Return whether this is such a case."""
    return "crowd" in case.inputs[0]


def crowd_structure(case: Case) -> list[Any]:
    """Return what comes: each worker's answers and the server's state, or the problem in words."""
    weight = case.inputs[0]["weight"]
    answer = {"read": int, "version": int, "weight": weight}
    came = {
        "answers": [Each(answer, 1, len(each)) for each in cast(Any, case.inputs[0]["crowd"])],
        **state_structure(case),
    }
    return [OneOf((came, {"problem": str, "words": str}))]


def found_in_crowd(
    case: Case, came: Values, gradients_a_version: int, *, some_are_dropped: bool = False
) -> Iterator[str]:
    """Yield in words that gradients are not in the weights once, or that an answer's weights are not of its version.

    Args:
        case: Made by crowd_case.
        came: What the driver brought.
        gradients_a_version: 1 where each gradient makes a version, more where the mean of so many does.
        some_are_dropped: Whether a gradient may be used or not.
    """
    answers = listed(came, "answers")
    gradients = listed(case.inputs[0], "crowd")
    for worker, some in enumerate(answers):
        if len(some) < len(gradients[worker]) and some[-1]["version"] < integer(case.inputs[0], "until"):
            yield f"Worker {worker} was answered {len(some)} of {len(gradients[worker])} times."
    pushed = {
        (worker, answer["read"]): gradients[worker][number]
        for worker, some in enumerate(answers)
        for number, answer in enumerate(some)
    }
    updates = listed(came, "updates")
    version = integer(came, "version")
    total = version * gradients_a_version if some_are_dropped else sum(map(len, answers))
    if any(isinstance(each, str) for each in updates) or len(updates) != total:
        yield f"{total} gradients were to be used, and server.updates has {len(updates)} records of them."
        return
    if sorted(each[0] for each in updates) != list(range(total)):
        yield "Two records in server.updates have the same sequence number: two pushes ran through it."
    lr, weights = cast(float, case.inputs[0]["lr"]), [tensor(case.inputs[0], "weight")]
    for start in range(0, total, gradients_a_version):
        group = sorted(updates, key=lambda each: each[0])[start : start + gradients_a_version]
        if any(each[3] != len(weights) - 1 for each in group):
            text = f"server.updates says that a gradient was applied to version {group[0][3]}, expected"
            yield f"{text} {len(weights) - 1}: two pushes ran through each other."
            return
        if any((worker, read) not in pushed for _, worker, read, _ in group):
            yield "server.updates has a gradient that nobody pushed: two pushes ran through each other."
            return
        change = torch.stack([pushed[worker, read] for _, worker, read, _ in group]).sum(0) / gradients_a_version
        weights.append(weights[-1] - lr * change)
    if version != len(weights) - 1:
        yield f"All have pushed, and the version is {version}, expected {len(weights) - 1}."
    if not _close(came["weight"], weights[-1]):
        yield f"{total} gradients were pushed at the same time, and not all of them are in the weights."
    for worker, some in enumerate(answers):
        for number, answer in enumerate(some):
            there = answer["version"]
            if not 0 < there < len(weights) or not _close(answer["weight"], weights[there]):
                said = f"The answer to worker {worker}'s push {number + 1} says version {there}"
                yield f"{said}, and its weights are not those of that version."


def _close(came: object, right: Tensor) -> bool:
    return (
        isinstance(came, Tensor)
        and came.shape == right.shape
        and bool(torch.allclose(came.double(), right, rtol=0, atol=TOLERANCE))
    )
