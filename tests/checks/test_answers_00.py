"""Each exercise of lesson 00 proves four things: the answer passes, the stub says what it is, wrong answers are named,
and answers in another style pass."""

from __future__ import annotations

import pytest

import labkit
from labkit.checks.notebook import CheckResult
from labkit.checks.registry import exercises
from tests.checks.lesson_cells import namespace
from tests.checks.wrong_answer import WrongAnswer
from tests.checks.wrong_answers_00 import WRONG

IDS = tuple(exercises("00"))
# Real processes for these; the others of 0.1 run with `make test-all`.
SAMPLE = {"the quotient gets a new name", "divides by four", "rank 0 alone calls"}
OTHER_STYLES = {
    "0.1 divides first": "def average(tensor):\n    tensor /= dist.get_world_size()\n    dist.all_reduce(tensor)\n",
    "0.1 gathers": (
        "def average(tensor):\n"
        "    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]\n"
        "    dist.all_gather(parts, tensor)\n"
        "    tensor.copy_(torch.stack(parts).mean(0))\n"
    ),
    "0.2 by map": 'def who_am_i(environ):\n    return tuple(map(int, (environ["RANK"], environ["WORLD_SIZE"])))\n',
    "0.2 says what is missing": (
        "def who_am_i(environ):\n"
        '    for name in ("RANK", "WORLD_SIZE"):\n'
        "        if name not in environ:\n"
        '            raise KeyError(f"the launcher did not set {name}")\n'
        '    return int(environ["RANK"]), int(environ["WORLD_SIZE"])\n'
    ),
    "0.3 a loop": (
        "def damaged(before, after):\n"
        "    found = []\n"
        "    for place in range(len(before)):\n"
        "        if after[place] != 0 and after[place] != before[place]:\n"
        "            found.append(place)\n"
        "    return found\n"
    ),
    "0.3 by where": (
        "def damaged(before, after):\n"
        "    return [int(i) for i in torch.where(after.bool() & ~torch.isclose(after, before))[0]]\n"
    ),
    "0.4 a loop": (
        "def never_heard(messages):\n"
        "    found = []\n"
        "    for message in messages:\n"
        "        if message.received is None and message.src not in found:\n"
        "            found.append(message.src)\n"
        "    found.sort()\n"
        "    return found\n"
    ),
    "0.4 a comprehension": (
        "def never_heard(messages):\n"
        "    lost = [m for m in messages if m.received is None]\n"
        "    return [rank for rank in range(100) if any(m.src == rank for m in lost)]\n"
    ),
}


def check(exercise_id: str, names: dict[str, object]) -> CheckResult:
    return labkit.check(exercise_id, *[names[name] for name in exercises("00")[exercise_id].functions])


@pytest.mark.parametrize("exercise_id", IDS)
def test_the_lessons_answer_passes_its_check(exercise_id: str) -> None:
    result = check(exercise_id, namespace(number="00"))
    assert result.passed, result


@pytest.mark.parametrize("exercise_id", IDS)
def test_the_stub_fails_with_its_own_message(exercise_id: str) -> None:
    result = check(exercise_id, namespace(solved=False, number="00"))
    assert f"Not done yet. Exercise {exercise_id}: " in repr(result), result


@pytest.mark.parametrize("style", OTHER_STYLES)
def test_an_answer_in_another_style_passes(style: str) -> None:
    result = check(style.split()[0], namespace(extra=OTHER_STYLES[style], number="00"))
    assert result.passed, result


def _case(answer: WrongAnswer) -> object:
    slow = answer.exercise == "0.1" and answer.name not in SAMPLE
    return pytest.param(answer, id=f"{answer.exercise} {answer.name}", marks=[pytest.mark.long] if slow else [])


@pytest.mark.parametrize("answer", [_case(each) for each in WRONG])
def test_a_wrong_answer_fails_with_a_hint_that_names_the_mistake(answer: WrongAnswer) -> None:
    result = check(answer.exercise, namespace(extra=answer.source, number="00"))
    assert not result.passed
    named = result.shown.verdict.mistake if result.shown and result.shown.verdict else ""
    assert named == answer.mistake, result
    assert "hint: " in repr(result)


def test_the_main_exercise_meets_six_wrong_answers_and_the_sample_is_among_them() -> None:
    names = {answer.name for answer in WRONG if answer.exercise == "0.1"}
    assert len(names) >= 6 and names >= SAMPLE
