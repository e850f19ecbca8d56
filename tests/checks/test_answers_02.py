"""Each exercise of lesson 02 proves four things: the answer passes, the stub says what it is, wrong answers are named,
and an answer in another style passes."""

from __future__ import annotations

from collections import Counter

import pytest

import labkit
from labkit.checks.notebook import CheckResult
from labkit.checks.registry import exercises
from tests.checks.lesson_cells import namespace
from tests.checks.wrong_answer import WrongAnswer
from tests.checks.wrong_answers_02 import WRONG
from tests.submissions.making import style as style_answers

IDS = tuple(exercises("02"))
STYLES = ("right_one_loop_per_collective", "right_in_few_lines")
# One process world for each of these is enough for every commit; all others run with `make test-all`.
SAMPLE = {
    ("2.1", "rank 0 sends before it receives"),
    ("2.5", "always adds"),
    ("2.6", "whole tensor round the ring"),
    ("2.6", "last all-gather step forgotten"),
    ("2.6", "blocking sends on all ranks at once"),
    ("2.7", "adds up in bfloat16"),
    ("2.9", "a chain"),
    ("2.10", "the whole tensor to each partner"),
    ("2.11", "own piece forgotten"),
    ("2.12", "leaders only"),
}


def check(exercise_id: str, names: dict[str, object]) -> CheckResult:
    return labkit.check(exercise_id, *[names[name] for name in exercises("02")[exercise_id].functions])


def mistake_of(result: CheckResult) -> str:
    return result.shown.verdict.mistake if result.shown and result.shown.verdict else ""


@pytest.mark.parametrize("exercise_id", IDS)
def test_the_lessons_answer_passes_its_check(exercise_id: str) -> None:
    result = check(exercise_id, namespace())
    assert result.passed, result


@pytest.mark.parametrize("exercise_id", IDS)
def test_the_stub_fails_with_its_own_message(exercise_id: str) -> None:
    result = check(exercise_id, namespace(solved=False))
    assert not result.passed
    assert f"Not done yet. Exercise {exercise_id}: " in repr(result), result


@pytest.mark.parametrize("style", [STYLES[0], pytest.param(STYLES[1], marks=pytest.mark.long)])
@pytest.mark.parametrize("exercise_id", IDS)
def test_an_answer_in_another_style_passes(exercise_id: str, style: str) -> None:
    result = check(exercise_id, namespace(extra="\n\n".join(style_answers("02", style).values())))
    assert result.passed, result


def _marks(answer: WrongAnswer) -> list[pytest.MarkDecorator]:
    quick = not exercises("02")[answer.exercise].distributed or (answer.exercise, answer.name) in SAMPLE
    return [] if quick else [pytest.mark.long]


@pytest.mark.parametrize(
    "answer", [pytest.param(each, id=f"{each.exercise} {each.name}", marks=_marks(each)) for each in WRONG]
)
def test_a_wrong_answer_fails_with_a_hint_that_names_the_mistake(answer: WrongAnswer) -> None:
    result = check(answer.exercise, namespace(extra=answer.source))
    assert not result.passed
    assert mistake_of(result) == answer.mistake, result
    assert "hint: " in repr(result)


def test_every_exercise_has_wrong_answers_enough() -> None:
    counts = Counter(answer.exercise for answer in WRONG)
    few = {number: counts[number] for number in IDS if counts[number] < (6 if number in ("2.6", "2.7") else 3)}
    assert not few


def test_the_sample_names_wrong_answers_that_exist() -> None:
    assert {(answer.exercise, answer.name) for answer in WRONG} >= SAMPLE
