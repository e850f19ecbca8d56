"""Cases that call a server step by step, what a rule says must happen, and how a difference is said.

A script is a list of pushes, leavings and, for the synchronous server, pulls. From it alone follows when each push is
answered, and with which version: that is a rule, a function of this module's callers. Weights are sums of gradients,
written down per version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.compare import difference, listing
from labkit.checks.finding import Finding
from labkit.checks.moves import how_moved
from labkit.checks.structure import Each, OneOf
from labkit.checks.values import integer, integers, listed, tensor, texts
from labkit.words import join

Step: TypeAlias = dict[str, Any]
Script: TypeAlias = list[Step]
TOLERANCE = 1e-9
ALIAS, NOT_NOTED, UNLOCKED = "hands out the server's own tensor", "updates not noted", "without a lock"
OTHER_RECORD = "another record"


@dataclass(frozen=True)
class Course:
    """What happens in a script.

    Attributes:
        answers: For each step, the pushes (by their step) answered in it, each with the version it is told.
        updates: Sequence, worker, version read, version applied of each gradient that is used.
        changes: For each version but 0, what is taken off the weights, before the learning rate.
        told: Version whose weights go with an answer, where that is not the version that is told (a mistake).
    """

    answers: tuple[tuple[tuple[int, int], ...], ...]
    updates: tuple[tuple[int, int, int, int], ...]
    changes: tuple[Tensor, ...]
    told: Callable[[int, int], int] = lambda push, version: version

    @property
    def version(self) -> int:
        """Return the version at the end."""
        return len(self.changes)


Rule: TypeAlias = Callable[[Case], Course]
"""What a server does with a case's script; a mistake is another rule."""


def push(worker: int, version: int, gradient: Tensor) -> Step:
    """Return the step in which a worker pushes."""
    return {"op": "push", "worker": worker, "version": version, "gradient": gradient}


def leave(worker: int) -> Step:
    """Return the step in which a worker leaves."""
    return {"op": "leave", "worker": worker}


def pull() -> Step:
    """Return the step in which somebody asks for the weights."""
    return {"op": "pull", "worker": -1}


def script_case(name: str, server: str, script: Script, num_workers: int, lr: float, more: Sequence[int] = ()) -> Case:
    """Return a case of one rank that calls a server step by step."""
    size = next(step["gradient"] for step in script if step["op"] == "push").numel()
    inputs: dict[str, Value] = {
        "server": server,
        "weight": torch.linspace(-1, 2, size, dtype=torch.float64),
        "num_workers": num_workers,
        "lr": lr,
        "more": list(more),
        "script": script,
    }
    return Case(name, 1, (inputs,))


def script_of(case: Case) -> Script:
    """Return a case's script."""
    return cast(Script, case.inputs[0]["script"])


def more_of(case: Case) -> int:
    """Return the first further argument of the server: its bound, or how many it needs."""
    return integers(case.inputs[0], "more")[0]


def workers_of(case: Case) -> int:
    """Return the number of workers."""
    return integer(case.inputs[0], "num_workers")


def weights_of(case: Case, course: Course) -> list[Tensor]:
    """Return the weights of each version."""
    weights = [tensor(case.inputs[0], "weight")]
    for change in course.changes:
        weights.append(weights[-1] - cast(float, case.inputs[0]["lr"]) * change)
    return weights


def results(case: Case, course: Course) -> Values:
    """Return what a driver brings if all goes this way."""
    weights = weights_of(case, course)
    steps: list[Value] = [
        [
            {"push": number, "version": version, "weight": weights[course.told(number, version)]}
            for number, version in sorted(answers)
        ]
        for answers in course.answers
    ]
    updates: list[Value] = [list(each) for each in course.updates]
    end: dict[str, Value] = {"version": course.version, "weight": weights[-1], "updates": updates}
    return {"steps": steps, "changed": False, "loose": [], **end}


def script_structure(case: Case) -> list[Any]:
    """Return what comes: the answers in each step and the server's state, or the problem and its step."""
    answer = {"push": int, "version": int, "weight": case.inputs[0]["weight"]}
    steps = [Each(answer) for _ in script_of(case)]
    came = {"steps": steps, "changed": bool, "loose": Each(str), **state_structure(case)}
    return [OneOf((came, {"problem": str, "step": int}))]


def state_structure(case: Case) -> dict[str, Any]:
    """Return what comes of a server's state in the end: version, weights, record of updates (what is none in words)."""
    return {"version": int, "weight": case.inputs[0]["weight"], "updates": Each(OneOf(([int] * 4, str)))}


def _name(case: Case, number: int) -> str:
    step = script_of(case)[number]
    if step["op"] != "push":
        return "pull()" if step["op"] == "pull" else f"leave({step['worker']})"
    nth = sum(each["op"] == "push" and each["worker"] == step["worker"] for each in script_of(case)[: number + 1])
    return f"worker {step['worker']}'s push {nth}"


def _story(case: Case, until: int) -> str:
    return "; ".join(_name(case, number) for number in range(until + 1))


def same(one: Any, other: Any) -> bool:
    """Return whether two results are the same, tensors up to rounding."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and bool(torch.allclose(one.double(), other.double(), rtol=0, atol=TOLERANCE))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)


def answers_in(came: Values) -> list[list[dict[str, Any]]]:
    """Return the answers that went out in each step, by the push or the pull that they answer."""
    return [sorted(step, key=lambda each: int(each["push"])) for step in listed(came, "steps")]


def follows(case: Case, came: Values, rule: Rule) -> bool:
    """Return whether what came is what another rule brings, the record of updates left aside."""
    made = results(case, rule(case))
    return all(same(came[name], made[name]) for name in ("steps", "version", "weight"))


def found_in_script(case: Case, came: Values, rule: Rule, *, answers_run_free: bool) -> Iterator[Finding]:
    """Yield pushes not answered when they must be, or with other versions or weights, or not noted, or unlocked.

    Args:
        case: With a script.
        came: What the driver brought.
        rule: What should happen.
        answers_run_free: Whether others may push while an answer is put together, so that the lock must be held then.
    """
    right = results(case, rule(case))
    for number, (mine, wanted) in enumerate(zip(listed(came, "steps"), listed(right, "steps"), strict=True)):
        yield from _step(case, number, mine, wanted)
    if came["changed"]:
        said = "The weights in an answer changed after it was given: it holds the server's own tensor, not a copy."
        yield Finding(ALIAS, said)
    if not same(came["version"], right["version"]) or not same(came["weight"], right["weight"]):
        said = (
            f"After all calls pull() gives version {came['version']} and weights {_list(came['weight'])}, expected "
            f"version {right['version']} and {_list(right['weight'])}."
        )
        yield Finding("", said)
    yield from _noted(listed(came, "updates"), listed(right, "updates"))
    for words in texts(came, "loose"):
        method, verb, name = words.split()
        if answers_run_free or verb != "reads" or name not in ("weight", "version"):
            said = f"{method} {verb} self.{name} without holding self.lock: another call may be halfway through it."
            yield Finding(UNLOCKED, said)


def problem_said(case: Case, came: Values) -> str:
    """Return in words what the driver met when it called a server step by step."""
    what = _name(case, integer(came, "step"))
    if came["problem"] == "blocked":
        return f"{what[0].upper()}{what[1:]} did not come back: it waits inside the call."
    if came["problem"] == "unmarked":
        return "push returns a Future, but it is not marked @rpc.functions.async_execution: RPC would try to send it."
    if came["problem"] == "no future":
        return "push is marked @rpc.functions.async_execution, so it must return a Future at once."
    return f"The answer to {what} is {came['form']}; expected (version, weights), a whole number and a tensor."


def _step(case: Case, number: int, mine: Any, wanted: Any) -> Iterator[Finding]:
    story = f"Calls so far: {_story(case, number)}."
    pushes, right = sorted(each["push"] for each in mine), sorted(each["push"] for each in wanted)
    if pushes != right:
        shown, expected = (
            join(_name(case, each) for each in some) if some else "nobody" for some in (pushes, right)
        )  # fmt: skip
        yield Finding("", f"{story} Now answered: {shown}; expected: {expected}.", expected, shown)
        return
    for one, other in zip(
        sorted(mine, key=lambda each: each["push"]), sorted(wanted, key=lambda each: each["push"]), strict=True
    ):
        what = _name(case, other["push"])
        if one["version"] != other["version"]:
            text = f"{story} The answer to {what} says version {one['version']}, expected {other['version']}."
            yield Finding("", text, str(other["version"]), str(one["version"]))
        allowed = torch.full(other["weight"].shape, TOLERANCE, dtype=torch.float64)
        wrong = difference(one["weight"], other["weight"], allowed)
        if wrong is not None:
            text = f"{story} The weights in the answer to {what}: {wrong.got} where {wrong.expected} should be."
            text += how_moved(tensor(case.inputs[0], "weight"), one["weight"], other["weight"])
            yield Finding("", text, _list(other["weight"]), _list(one["weight"]))


def _noted(came: list[Any], right: list[Any]) -> Iterator[Finding]:
    if len(came) != len(right):
        said = f"server.updates has {len(came)} records for {len(right)} gradients that were used."
        yield Finding(NOT_NOTED, said)
        return
    names = ("sequence", "worker", "version_read", "version_applied")
    for number, (mine, wanted) in enumerate(zip(came, right, strict=True)):
        if mine != wanted:
            words = mine if isinstance(mine, str) else _record(names, mine)
            yield Finding(OTHER_RECORD, f"server.updates[{number}] is {words}, expected {_record(names, wanted)}.")


def _record(names: Sequence[str], values: Sequence[Any]) -> str:
    return f"Update({', '.join(f'{name}={value}' for name, value in zip(names, values, strict=True))})"


def _list(value: Any) -> str:
    return listing(value.flatten()) if isinstance(value, Tensor) else f"{value!r:.60}"
