"""Cases that call a server step by step, what a rule says must happen, and how a difference is said.

A script is a list of pushes and leavings. From the script alone follows when each push is answered, and with which
version: that is a rule, a function of this module's callers. Weights are sums of gradients, written down per version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.compare import difference, listing
from labkit.checks.structure import Each, OneOf
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.words import join

Step: TypeAlias = dict[str, Any]
Script: TypeAlias = list[Step]
TOLERANCE = 1e-9


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


def script_case(name: str, server: str, script: Script, num_workers: int, lr: float, more: Sequence[int] = ()) -> Case:
    """Return a case of one rank that calls a server step by step."""
    size = next(step["gradient"] for step in script if step["op"] == "push").numel()
    inputs: dict[str, Value] = {
        "server": server,
        "weight": torch.linspace(-1, 2, size, dtype=torch.float64),
        "num_workers": num_workers,
        "lr": lr,
        "more": list(more),
        "script": cast(Value, script),
    }
    return Case(name, 1, (inputs,))


def script_of(case: Case) -> Script:
    """Return a case's script."""
    return cast(Script, case.inputs[0]["script"])


def more_of(case: Case) -> int:
    """Return the first further argument of the server: its bound, or how many it needs."""
    return cast(list[int], case.inputs[0]["more"])[0]


def workers_of(case: Case) -> int:
    """Return the number of workers."""
    return cast(int, case.inputs[0]["num_workers"])


def weights_of(case: Case, course: Course) -> list[Tensor]:
    """Return the weights of each version."""
    weights = [cast(Tensor, case.inputs[0]["weight"])]
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


def oracle_of(rule: Rule) -> Callable[[Case], list[Values]]:
    """Return the oracle that follows a rule."""
    return lambda case: [results(case, rule(case))]


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
    if step["op"] == "leave":
        return f"leave({step['worker']})"
    nth = sum(each["op"] == "push" and each["worker"] == step["worker"] for each in script_of(case)[: number + 1])
    return f"worker {step['worker']}'s push {nth}"


def _story(case: Case, until: int) -> str:
    return "; ".join(_name(case, number) for number in range(until + 1))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and bool(torch.allclose(one.double(), other.double(), rtol=0, atol=TOLERANCE))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)


def follows(case: Case, got: Got, rule: Rule) -> bool:
    """Return whether what came is what another rule brings, the record of updates left aside."""
    if not isinstance(got, tuple) or "steps" not in got[0]:
        return False
    came, made = got[0], results(case, rule(case))
    return all(_same(came[name], made[name]) for name in ("steps", "version", "weight"))


def judge_script(case: Case, got: Got, rule: Rule, *, answers_run_free: bool) -> Verdict:
    """Return whether every push was answered when it must be, with the right version and weights, and was noted.

    Args:
        case: With a script.
        got: What the driver brought.
        rule: What should happen.
        answers_run_free: Whether others may push while an answer is put together, so that the lock must be held then.
    """
    assert isinstance(got, tuple)
    came, right = got[0], results(case, rule(case))
    if "problem" in came:
        return Verdict(False, _problem(case, came))
    for number, (mine, wanted) in enumerate(zip(cast(Any, came["steps"]), cast(Any, right["steps"]), strict=True)):
        verdict = _step(case, number, mine, wanted)
        if verdict is not None:
            return verdict
    if came["changed"]:
        return Verdict(
            False, "The weights in an answer changed after it was given: it holds the server's own tensor, not a copy."
        )
    if not _same(came["version"], right["version"]) or not _same(came["weight"], right["weight"]):
        return Verdict(
            False,
            f"After all calls pull() gives version {came['version']} and weights "
            f"{_list(came['weight'])}, expected version {right['version']} and {_list(right['weight'])}.",
        )
    noted = judge_updates(cast(Any, came["updates"]), cast(Any, right["updates"]))
    return noted or _judge_lock(cast(list[str], came["loose"]), answers_run_free) or Verdict(True)


def _judge_lock(loose: list[str], answers_run_free: bool) -> Verdict | None:
    """Return what was touched without the lock, None if nothing was that another call may touch at that moment."""
    for words in loose:
        method, verb, name = words.split()
        if answers_run_free or (verb, name) != ("reads", "weight"):
            text = f"{method} {verb} self.{name}, and self.lock is not held: another call may be in the midst of it."
            return Verdict(False, text)
    return None


def _problem(case: Case, came: Values) -> str:
    if came["problem"] == "crowd":
        return str(came["words"])
    what = _name(case, cast(int, came["step"]))
    if came["problem"] == "blocked":
        return f"{what[0].upper()}{what[1:]} did not come back: it waits inside the call."
    if came["problem"] == "unmarked":
        return "push returns a Future, but it is not marked @rpc.functions.async_execution: RPC would try to send it."
    if came["problem"] == "no future":
        return "push is marked @rpc.functions.async_execution, so it must return a Future at once."
    return f"The answer to {what} is {came['form']}; expected (version, weights), a whole number and a tensor."


def _step(case: Case, number: int, mine: Any, wanted: Any) -> Verdict | None:
    story = f"Calls so far: {_story(case, number)}."
    pushes, right = sorted(each["push"] for each in mine), sorted(each["push"] for each in wanted)
    if pushes != right:
        shown, expected = (
            join(_name(case, each) for each in some) if some else "nobody" for some in (pushes, right)
        )  # fmt: skip
        return Verdict(False, f"{story} Now answered: {shown}; expected: {expected}.", expected=expected, got=shown)
    for one, other in zip(
        sorted(mine, key=lambda each: each["push"]), sorted(wanted, key=lambda each: each["push"]), strict=True
    ):
        what = _name(case, other["push"])
        if one["version"] != other["version"]:
            text = f"{story} The answer to {what} says version {one['version']}, expected {other['version']}."
            return Verdict(False, text, expected=str(other["version"]), got=str(one["version"]))
        allowed = torch.full(other["weight"].shape, TOLERANCE, dtype=torch.float64)
        wrong = difference(one["weight"], other["weight"], allowed)
        if wrong is not None:
            text = f"{story} The weights in the answer to {what}: {wrong.got} where {wrong.expected} should be."
            return Verdict(False, text, expected=_list(other["weight"]), got=_list(one["weight"]))
    return None


def judge_updates(came: list[Any], right: list[Any]) -> Verdict | None:
    """Return what is wrong with the record of updates, None if nothing is."""
    if len(came) != len(right):
        return Verdict(False, f"server.updates has {len(came)} records for {len(right)} gradients that were used.")
    names = ("sequence", "worker", "version_read", "version_applied")
    for number, (mine, wanted) in enumerate(zip(came, right, strict=True)):
        if mine != wanted:
            words = mine if isinstance(mine, str) else _record(names, mine)
            return Verdict(False, f"server.updates[{number}] is {words}, expected {_record(names, wanted)}.")
    return None


def _record(names: Sequence[str], values: Sequence[Any]) -> str:
    return f"Update({', '.join(f'{name}={value}' for name, value in zip(names, values, strict=True))})"


def _list(value: Any) -> str:
    return listing(value.flatten()) if isinstance(value, Tensor) else f"{value!r:.60}"


def as_if(right: Rule, rule: Rule) -> Callable[[Case, Got, Wire], bool]:
    """Return whether what came is what another rule brings, and not what the right one does."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        return bool(script_of(case)) and follows(case, got, rule) and not follows(case, got, right)

    return seen
