"""Primary and backup: what is acknowledged when, and that nothing acknowledged is lost or counted twice."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Value, Values
from labkit.checks.compare import difference
from labkit.checks.finding import Finding
from labkit.checks.moves import how_moved
from labkit.checks.structure import Each, OneOf, in_words
from labkit.checks.values import integer, listed, records, tensor, text, texts
from labkit.checks.wire import Wire
from labkit.exercises.keys_rows_failures.on_ranks import ANSWER, BACKUPS_ANSWER
from labkit.exercises.remote_calls.drawn import drawer
from labkit.words import plural


def replica_case(name: str, seed: int, said: str, *, with_backup: bool) -> Case:
    """Return a case that drives one Replica.

    Args:
        name: In words.
        seed: Draws the gradients.
        said: "w0.3" is worker 0's gradient 3 being pushed, "a1" the backup's answer to the push that it got second,
            "f0" its failure.
        with_backup: Whether there is one.
    """
    draw, script = drawer(seed, 3), []
    known: dict[tuple[int, int], Tensor] = {}
    for word in said.split():
        if word[0] == "w":
            worker, number = map(int, word[1:].split("."))
            gradient = known.setdefault((worker, number), draw())
            script.append({"op": "push", "worker": worker, "number": number, "gradient": gradient})
        else:
            script.append({"op": "answer" if word[0] == "a" else "fail", "of": int(word[1:])})
    inputs = {"weight": draw(), "lr": 0.5, "with_backup": with_backup, "script": script}
    return Case(name, 1, (cast(Values, inputs),), {"said": said})


def safely_case(name: str, seed: int, behaviours: Sequence[Sequence[str]]) -> Case:
    """Return a case of push_safely: how each replica behaves, "answer", "fail" or "raise"."""
    listed: list[Value] = [list(each) for each in behaviours]
    return Case(name, 1, ({"behaviours": listed, "worker": 2, "number": seed % 89, "gradient": drawer(seed, 3)()},))


def dying_case(name: str, seed: int, num_workers: int, num_pushes: int, dies_after_s: float) -> Case:
    """Return a case in which the primary dies while workers push, over RPC on virtual ranks."""
    draw = drawer(seed, 4)
    gradients: list[Value] = [[draw() for _ in range(num_pushes)] for _ in range(num_workers)]
    return Case(name, 1, ({"gradients": gradients, "dies_after_s": dies_after_s},))


def script_of(case: Case) -> list[dict[str, Any]]:
    """Return the steps of a case that drives one Replica."""
    return listed(case.inputs[0], "script")


def _steps(case: Case) -> list[Value]:
    """Return, for each step, which pushes are answered with what, and version and weights afterwards."""
    steps: list[Value] = []
    pushes: list[tuple[int, int]] = []
    script, weight = script_of(case), tensor(case.inputs[0], "weight")
    for number, step in enumerate(script):
        news: list[Value] = []
        if step["op"] == "push":
            pushes.append((step["worker"], step["number"]))
            if not case.inputs[0]["with_backup"]:
                news.append({"push": len(pushes) - 1, "answer": len(set(pushes))})
        elif step["op"] == "answer":
            news.append({"push": step["of"], "answer": len(set(pushes[: step["of"] + 1]))})
        else:
            news.append({"push": step["of"], "answer": "raised"})
        different = {(s["worker"], s["number"]): s["gradient"] for s in script[: number + 1] if s["op"] == "push"}
        total = sum(different.values(), torch.zeros_like(weight))
        steps.append({"answered": news, "version": len(different), "weight": weight - 0.5 * total})
    return steps


def expected(case: Case) -> list[Values]:
    """Return what should come back (the oracle)."""
    inputs = case.inputs[0]
    if "dies_after_s" in inputs:
        gradients = [each for some in listed(inputs, "gradients") for each in some]
        return [{"version": len(gradients), "weight": torch.stack(gradients).sum(0)}]
    if "behaviours" in inputs:
        found: list[Value] = []
        for each in listed(inputs, "behaviours"):
            place = each.index("answer") if "answer" in each else None
            asked = len(each) if place is None else place + 1
            found.append({"answer": place, "asked": asked})
        return [{"found": found}]
    pushed: list[Value] = [step for step in script_of(case) if step["op"] == "push"]
    return [{"steps": _steps(case), "loose": [], "backup": pushed if inputs["with_backup"] else []}]


def structure(case: Case) -> list[Any]:
    """Return what comes of each kind of case, or the problem."""
    inputs = case.inputs[0]
    if "dies_after_s" in inputs:
        acknowledged = [[int, int] for _ in listed(inputs, "gradients")]
        end = {"version": int, "weight": cast(Any, inputs["gradients"])[0][0], "acknowledged": acknowledged}
        return [OneOf((end, {"problem": str, "words": str}))]
    answer = OneOf((int, str))
    if "behaviours" in inputs:
        noted = Each({"worker": int, "number": int, "gradient": inputs["gradient"]})
        calls = [
            {"answer": answer, "said": str, "pushed": [noted for _ in each]} for each in cast(Any, inputs["behaviours"])
        ]
        return [{"found": calls}]
    noted = Each({"worker": int, "number": int, "gradient": inputs["weight"]})
    problem = OneOf(({"problem": str, "step": int}, {"problem": str, "step": int, "form": str}))
    step = {"answered": Each({"push": int, "answer": answer}), "version": int, "weight": inputs["weight"]}
    return [OneOf(({"steps": [step for _ in script_of(case)], "loose": Each(str), "backup": noted}, problem))]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is not acknowledged, applied, passed on or kept as it must be."""
    came = got[0]
    if came.get("problem") == "died":
        yield Finding("", text(came, "words"))
    elif "problem" in came:
        blocked = came["problem"] == "blocked"
        words = "did not come back" if blocked else f"returned a value of type {came.get('form')}, not a Future"
        name = "waits inside push" if blocked else "returns no Future"
        yield Finding(name, f"{_story(case, integer(came, 'step'))} The last push {words}.")
    elif "dies_after_s" in case.inputs[0]:
        yield from _of_death(case, came)
    elif "behaviours" in case.inputs[0]:
        yield from _of_safely(case, came)
    else:
        yield from _of_steps(case, came)


def _story(case: Case, until: int) -> str:
    words = str(case.about["said"]).split()[: until + 1]
    said = []
    for word in words:
        if word[0] == "w":
            said.append("worker {} pushes its gradient {}".format(*word[1:].split(".")))
        else:
            verb = "answers" if word[0] == "a" else "fails"
            said.append(f"the backup {verb} its push {int(word[1:]) + 1}")
    story = "; ".join(said)
    return f"{story[0].upper()}{story[1:]}."


def _of_steps(case: Case, came: Values) -> Iterator[Finding]:
    whole = _mistake_of(case, came)
    for number, (mine, right) in enumerate(zip(records(came, "steps"), cast(Any, _steps(case)), strict=True)):
        story = _story(case, number)
        told, wanted = (
            {each["push"]: each["answer"] for each in step["answered"]} for step in (cast(Any, mine), right)
        )
        if told.keys() != wanted.keys() or len(listed(mine, "answered")) != len(wanted):
            shown, good = (
                f"push {', '.join(str(p + 1) for p in some)}" if some else "nothing" for some in (told, wanted)
            )
            yield Finding(whole, f"{story} Completed now: {shown}; expected: {good}.", good, shown)
        for push, answer in wanted.items():
            if answer == "raised" and "raised" not in str(told.get(push)):
                said = f"{story} The future of push {push + 1} gave {told.get(push)}; it should fail."
                yield Finding(whole or "the backup's failure is hidden", said)
            elif answer != "raised" and told.get(push) != answer:
                said = f"{story} The future of push {push + 1} gave {told.get(push)}, expected version {answer}."
                yield Finding(
                    whole or _another_version(case, number, told, answer) or _uncounted(case, mine, right), said
                )
        if mine["version"] != right["version"]:
            said = f"{story} The version is {mine['version']}, expected {right['version']}."
            yield Finding(whole or _uncounted(case, mine, right), said)
        wrong = difference(mine["weight"], right["weight"], torch.full((3,), 1e-9, dtype=torch.float64))
        if wrong is not None:
            moved = how_moved(tensor(case.inputs[0], "weight"), cast(Any, mine["weight"]), cast(Any, right["weight"]))
            yield Finding(whole, f"{story} The weights hold {wrong.got} where {wrong.expected} should be.{moved}")
    wanted_calls = [step for step in script_of(case) if step["op"] == "push"] if case.inputs[0]["with_backup"] else []
    yield from _of_calls("The backup", records(came, "backup"), wanted_calls, whole)
    for words in texts(came, "loose"):
        method, verb, name = words.split()
        said = f"{method} {verb} self.{name} without holding self.lock: another push may be halfway through it."
        yield Finding("without the lock", said)


def _another_version(case: Case, number: int, told: Mapping[int, Any], answer: object) -> str:
    """Return whether the backup's version was told, or the one of the moment in which it answered."""
    news = next((each for push, each in told.items() if each != answer), None)
    if news == BACKUPS_ANSWER:
        return "the backup's version"
    return "the version of a later moment" if news == _steps(case)[number]["version"] else ""  # type: ignore[call-overload, index]


def _uncounted(case: Case, mine: Mapping[str, Any], right: Mapping[str, Any]) -> str:
    """Return whether a gradient was applied and not counted, or not applied, or none was, as the mistake's name."""
    if torch.equal(mine["weight"], tensor(case.inputs[0], "weight")):
        return "nothing applied"
    applied = torch.allclose(mine["weight"], right["weight"])
    skipped = not applied and 0 < mine["version"] < right["version"]
    return "a new gradient is skipped" if skipped else "version not counted"


def _mistake_of(case: Case, came: Values) -> str:
    """Return the mistake that the whole script shows, the gravest first; "" if none is known."""
    pushes = [step for step in script_of(case) if step["op"] == "push"]
    steps = records(came, "steps")
    versions = [integer(step, "version") for step in steps]
    if case.inputs[0]["with_backup"]:
        passed_on = len(listed(came, "backup"))
        if not passed_on:
            return "nothing is pushed to the backup"
        if passed_on < len(pushes) and _repeated(case):
            return "a repeated gradient is not passed on"
        if any(step["answered"] for step, told in zip(steps, script_of(case), strict=True) if told["op"] == "push"):
            return "acknowledged before the backup has it"
        if versions[0] == 0 and versions[-1] > 0:
            return "applied when the backup has answered"
    ways: list[tuple[str, Callable[[], list[int]]]] = [
        ("numbers without their workers", lambda: _versions(case, lambda some: {number for _, number in some})),
        ("the largest number only", lambda: _versions(case, _rising)),
        ("the last number only", lambda: _versions(case, _not_the_last)),
        ("a repeated gradient counts twice", lambda: _versions(case, list)),
    ]
    right = _versions(case, set)
    if versions == _versions(case, list) != right and _weights_right(case, steps):
        return "a repeated push counts a version"
    return as_if(versions, ways, operator.eq) if versions != right else ""


def _weights_right(case: Case, steps: Sequence[Mapping[str, Any]]) -> bool:
    return all(
        torch.allclose(mine["weight"], cast(Any, right)["weight"])
        for mine, right in zip(steps, _steps(case), strict=True)
    )


def _repeated(case: Case) -> bool:
    names = [(step["worker"], step["number"]) for step in script_of(case) if step["op"] == "push"]
    return len(set(names)) < len(names)


def _versions(case: Case, kept: Callable[[list[tuple[int, int]]], Collection[object]]) -> list[int]:
    """Return the version after each step, if it counts what a rule keeps of all pushes."""
    pushed: list[tuple[int, int]] = []
    found = []
    for step in script_of(case):
        if step["op"] == "push":
            pushed.append((step["worker"], step["number"]))
        found.append(len(kept(pushed)))
    return found


def _rising(pushed: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pushes whose number is larger than all before of that worker."""
    last: dict[int, int] = {}
    found = []
    for worker, number in pushed:
        if number > last.get(worker, -1):
            last[worker] = number
            found.append((worker, number))
    return found


def _not_the_last(pushed: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pushes whose number is another than the last one of that worker."""
    last: dict[int, int] = {}
    found = []
    for worker, number in pushed:
        if last.get(worker) != number:
            found.append((worker, number))
        last[worker] = number
    return found


def _of_calls(who: str, came: Sequence[Any], wanted: Sequence[Any], name: str = "") -> Iterator[Finding]:
    if len(came) != len(wanted):
        too_many = "asks everybody" if len(came) > len(wanted) == 0 else ""
        yield Finding(name or too_many, f"{who} was pushed {plural(len(came), 'gradient')}, expected {len(wanted)}.")
        return
    for mine, right in zip(came, wanted, strict=True):
        if (mine["worker"], mine["number"]) != (right["worker"], right["number"]):
            yield Finding(
                name or "another number for the retry",
                f"{who} was pushed number {mine['number']} of worker {mine['worker']}, expected number "
                f"{right['number']} of worker {right['worker']}.",
            )
        if difference(mine["gradient"], right["gradient"], torch.full((3,), 1e-9, dtype=torch.float64)) is not None:
            yield Finding(name, f"{who} was pushed another gradient than the one that came.")


def _did(answer: object) -> str:
    raised = str(answer).endswith(" raised")
    return f"raised {str(answer).removesuffix(' raised')}" if raised else f"gave {in_words(answer)}"


def _line(mine: Mapping[str, Any]) -> str:
    """Return what an error said and in which line, as a sentence that begins with a space, or ""."""
    return f" It said: {mine['said']}." if mine.get("said") else ""


def _of_safely(case: Case, came: Values) -> Iterator[Finding]:
    inputs = case.inputs[0]
    push = {"worker": inputs["worker"], "number": inputs["number"], "gradient": inputs["gradient"]}
    right = cast(list[dict[str, Any]], expected(case)[0]["found"])
    for behaviours, mine, wanted in zip(cast(Any, inputs["behaviours"]), records(came, "found"), right, strict=True):
        story = f"Replicas that {' and '.join({'raise': 'cannot be reached'}.get(each, each) for each in behaviours)}:"
        if wanted["answer"] is None and mine["answer"] != "RuntimeError raised":
            said = f"{story} push_safely {_did(mine['answer'])}; it should raise a RuntimeError."
            yield Finding("no error when nobody answers", said)
        if wanted["answer"] is not None and mine["answer"] != wanted["answer"]:
            name = {0: "does not wait for the answer", "RuntimeError raised": "stops at the first replica"}
            if set(behaviours) == {"answer"}:
                name = {len(behaviours) - 1: "asks everybody"}
                if not listed(mine, "pushed")[0]:
                    name = {len(behaviours) - 1: "not the primary first"}
                elif not any(listed(mine, "pushed")[1:]):
                    name = {1: "another number than the index"}
            name |= {ANSWER: "returns the answer"}
            said = f"{story} push_safely {_did(mine['answer'])}, expected {wanted['answer']}.{_line(mine)}"
            yield Finding(name.get(cast(Any, mine["answer"]), ""), said)
        for place, noted in enumerate(listed(mine, "pushed")):
            yield from _of_calls(f"{story} replica {place}", noted, [push] if place < wanted["asked"] else [])


def _of_death(case: Case, came: Values) -> Iterator[Finding]:
    right = expected(case)[0]
    pushed, version = integer(right, "version"), integer(came, "version")
    if version != pushed:
        said = f"{pushed} gradients were acknowledged, and the backup holds {version}: some were "
        lost = version < pushed
        name = "" if lost else "a repeated gradient counts twice"
        yield Finding(name, f"{said}{'lost' if lost else 'counted twice'}.", str(pushed), str(version))
    wrong = difference(came["weight"], tensor(right, "weight"), torch.full((4,), 1e-9, dtype=torch.float64))
    if wrong is not None:
        yield Finding("", f"The backup's weights hold {wrong.got} where {wrong.expected} should be.")
    acknowledged = [sum(each) for each in listed(came, "acknowledged")]
    each = [len(some) for some in listed(case.inputs[0], "gradients")]
    if acknowledged != each:
        yield Finding("", f"Workers were told of {acknowledged} gradients, of the {each} that they pushed.")
