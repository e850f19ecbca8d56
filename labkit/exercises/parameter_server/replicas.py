"""Primary and backup: what is acknowledged when, and that nothing acknowledged is lost or counted twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.compare import difference
from labkit.checks.structure import Each, OneOf
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.scripts import drawer
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
    return Case(name, 1, ({"weight": draw(), "lr": 0.5, "gradients": gradients, "dies_after_s": dies_after_s},))


def script_of(case: Case) -> list[dict[str, Any]]:
    """Return the steps of a case that drives one Replica."""
    return cast(list[dict[str, Any]], case.inputs[0]["script"])


def _steps(case: Case) -> list[Value]:
    """Return, for each step, which pushes are answered with what, and version and weights afterwards."""
    steps: list[Value] = []
    pushes: list[tuple[int, int]] = []
    script, weight = script_of(case), cast(Tensor, case.inputs[0]["weight"])
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
        gradients = [each for some in cast(list[list[Tensor]], inputs["gradients"]) for each in some]
        weight = cast(Tensor, inputs["weight"]) - 0.5 * torch.stack(gradients).sum(0)
        return [{"version": len(gradients), "weight": weight}]
    if "behaviours" in inputs:
        found: list[Value] = []
        for each in cast(list[list[str]], inputs["behaviours"]):
            place = each.index("answer") if "answer" in each else None
            asked = len(each) if place is None else place + 1
            found.append({"answer": place, "asked": asked})
        return [{"found": found}]
    pushed: list[Value] = [step for step in script_of(case) if step["op"] == "push"]
    return [{"steps": _steps(case), "backup": pushed if inputs["with_backup"] else []}]


def structure(case: Case) -> list[Any]:
    """Return what comes of each kind of case, or the problem."""
    inputs = case.inputs[0]
    if "dies_after_s" in inputs:
        acknowledged = [[int, int] for _ in cast(list[Any], inputs["gradients"])]
        end = {"version": int, "weight": inputs["weight"], "acknowledged": acknowledged}
        return [OneOf((end, {"problem": str, "words": str}))]
    answer = OneOf((int, str))
    if "behaviours" in inputs:
        noted = Each({"worker": int, "number": int, "gradient": inputs["gradient"]})
        calls = [{"answer": answer, "pushed": [noted for _ in each]} for each in cast(Any, inputs["behaviours"])]
        return [{"found": calls}]
    noted = Each({"worker": int, "number": int, "gradient": inputs["weight"]})
    step = {"answered": Each({"push": int, "answer": answer}), "version": int, "weight": inputs["weight"]}
    return [OneOf(({"steps": [step for _ in script_of(case)], "backup": noted}, {"problem": str, "step": int}))]


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether acknowledgements, weights and calls are as they must be."""
    assert isinstance(got, tuple)
    came = got[0]
    if came.get("problem") == "died":
        return Verdict(False, str(came["words"]))
    if "dies_after_s" in case.inputs[0]:
        return _judge_death(case, came)
    if "behaviours" in case.inputs[0]:
        return _judge_safely(case, came)
    if "problem" in came:
        words = "did not come back" if came["problem"] == "blocked" else f"returned a {came.get('form')}, no Future"
        return Verdict(False, f"{_story(case, cast(int, came['step']))} The last push {words}.")
    return _judge_steps(case, came)


def _story(case: Case, until: int) -> str:
    words = str(case.about["said"]).split()[: until + 1]
    said = []
    for word in words:
        if word[0] == "w":
            said.append("worker {} pushes number {}".format(*word[1:].split(".")))
        else:
            verb = "answers" if word[0] == "a" else "fails"
            said.append(f"the backup {verb} its push {int(word[1:]) + 1}")
    return f"{'; '.join(said)}."


def _judge_steps(case: Case, came: Values) -> Verdict:
    for number, (mine, right) in enumerate(zip(cast(Any, came["steps"]), cast(Any, _steps(case)), strict=True)):
        story = _story(case, number)
        told, wanted = ({each["push"]: each["answer"] for each in step["answered"]} for step in (mine, right))
        if told.keys() != wanted.keys() or len(mine["answered"]) != len(wanted):
            shown, good = (
                f"push {', '.join(str(p + 1) for p in some)}" if some else "nothing" for some in (told, wanted)
            )
            return Verdict(False, f"{story} Completed now: {shown}; expected: {good}.", expected=good, got=shown)
        for push, answer in wanted.items():
            if answer == "raised":
                if "raised" not in str(told[push]):
                    return Verdict(False, f"{story} The future of push {push + 1} gave {told[push]}; it should fail.")
            elif told[push] != answer:
                return Verdict(
                    False, f"{story} The future of push {push + 1} gave {told[push]}, expected version {answer}."
                )
        if mine["version"] != right["version"]:
            return Verdict(False, f"{story} The version is {mine['version']}, expected {right['version']}.")
        wrong = difference(mine["weight"], right["weight"], torch.full((3,), 1e-9, dtype=torch.float64))
        if wrong is not None:
            return Verdict(False, f"{story} The weights hold {wrong.got} where {wrong.expected} should be.")
    wanted_calls = [step for step in script_of(case) if step["op"] == "push"] if case.inputs[0]["with_backup"] else []
    return _judge_calls("The backup", cast(Any, came["backup"]), wanted_calls) or Verdict(True)


def _judge_calls(who: str, came: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> Verdict | None:
    if len(came) != len(wanted):
        return Verdict(False, f"{who} was pushed {plural(len(came), 'gradient')}, expected {len(wanted)}.")
    for mine, right in zip(came, wanted, strict=True):
        if (mine["worker"], mine["number"]) != (right["worker"], right["number"]):
            return Verdict(
                False,
                f"{who} was pushed number {mine['number']} of worker {mine['worker']}, expected number "
                f"{right['number']} of worker {right['worker']}.",
            )
        if difference(mine["gradient"], right["gradient"], torch.full((3,), 1e-9, dtype=torch.float64)) is not None:
            return Verdict(False, f"{who} was pushed another gradient than the one that came.")
    return None


def _judge_safely(case: Case, came: Values) -> Verdict:
    inputs = case.inputs[0]
    push = {"worker": inputs["worker"], "number": inputs["number"], "gradient": inputs["gradient"]}
    right = cast(list[dict[str, Any]], expected(case)[0]["found"])
    for behaviours, mine, wanted in zip(cast(Any, inputs["behaviours"]), cast(Any, came["found"]), right, strict=True):
        story = f"Replicas that {', '.join({'raise': 'cannot be reached'}.get(each, each) for each in behaviours)}:"
        if wanted["answer"] is None and mine["answer"] != "RuntimeError raised":
            return Verdict(False, f"{story} push_safely gave {mine['answer']}; it should raise a RuntimeError.")
        if wanted["answer"] is not None and mine["answer"] != wanted["answer"]:
            return Verdict(False, f"{story} push_safely gave {mine['answer']}, expected {wanted['answer']}.")
        for place, noted in enumerate(mine["pushed"]):
            calls = [push] if place < wanted["asked"] else []
            verdict = _judge_calls(f"{story} replica {place}", noted, cast(Any, calls))
            if verdict is not None:
                return verdict
    return Verdict(True)


def _judge_death(case: Case, came: Values) -> Verdict:
    right = expected(case)[0]
    pushed, version = right["version"], came["version"]
    if version != pushed:
        what = "lost" if cast(int, version) < cast(int, pushed) else "counted twice"
        text = f"{pushed} gradients were acknowledged, and the backup holds {version}: some were {what}."
        return Verdict(False, text, expected=str(pushed), got=str(version))
    wrong = difference(came["weight"], cast(Tensor, right["weight"]), torch.full((4,), 1e-9, dtype=torch.float64))
    if wrong is not None:
        return Verdict(False, f"The backup's weights hold {wrong.got} where {wrong.expected} should be.")
    return Verdict(True)
