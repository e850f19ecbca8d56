"""Each exercise of lesson 03 proves four things: the answer passes, the stub says what it is, wrong answers are named,
and an answer in another style passes."""

from __future__ import annotations

from collections import Counter

import pytest

import labkit
from labkit.checks.notebook import CheckResult
from labkit.checks.par import measure
from labkit.checks.registry import exercises
from tests.checks.lesson_cells import namespace
from tests.checks.wrong_answer import WrongAnswer
from tests.checks.wrong_answers_03 import WRONG
from tests.submissions.making import style as style_answers

IDS = tuple(exercises("03"))
STYLES = ("right_views_of_the_bucket", "right_in_few_lines")
# One process world for each of these is enough for every commit; all others run with `make test-all`.
SAMPLE = {
    ("3.1", "parameters only"),
    ("3.2", "divided by two"),
    ("3.3", "buffers stay"),
    ("3.5", "wraps torch's DDP"),
}


def check(exercise_id: str, names: dict[str, object]) -> CheckResult:
    return labkit.check(exercise_id, *[names[name] for name in exercises("03")[exercise_id].functions])


def mistake_of(result: CheckResult) -> str:
    return result.shown.verdict.mistake if result.shown and result.shown.verdict else ""


@pytest.mark.parametrize("exercise_id", IDS)
def test_the_lessons_answer_passes_its_check(exercise_id: str) -> None:
    result = check(exercise_id, namespace(number="03"))
    assert result.passed, result


@pytest.mark.parametrize(
    "exercise_id",
    [each if each in ("3.1", "3.5", "3.8") else pytest.param(each, marks=pytest.mark.long) for each in IDS],
)
def test_the_stub_fails_with_its_own_message(exercise_id: str) -> None:
    result = check(exercise_id, namespace(solved=False, number="03"))
    assert not result.passed
    assert f"Exercise {exercise_id}: " in repr(result), result


@pytest.mark.parametrize("style", [pytest.param(style, marks=pytest.mark.long) for style in STYLES])
@pytest.mark.parametrize("exercise_id", IDS)
def test_an_answer_in_another_style_passes(exercise_id: str, style: str) -> None:
    extra = "\n\n".join(style_answers("03", style).values())
    result = check(exercise_id, namespace(extra=extra, number="03"))
    assert result.passed, result


def _marks(answer: WrongAnswer) -> list[pytest.MarkDecorator]:
    quick = not exercises("03")[answer.exercise].distributed or (answer.exercise, answer.name) in SAMPLE
    return [] if quick else [pytest.mark.long]


@pytest.mark.parametrize(
    "answer", [pytest.param(each, id=f"{each.exercise} {each.name}", marks=_marks(each)) for each in WRONG]
)
def test_a_wrong_answer_fails_with_a_hint_that_names_the_mistake(answer: WrongAnswer) -> None:
    result = check(answer.exercise, namespace(extra=answer.source, number="03"))
    assert not result.passed
    assert mistake_of(result) == answer.mistake, result
    assert "hint: " in repr(result)


def test_every_exercise_has_wrong_answers_enough() -> None:
    counts = Counter(answer.exercise for answer in WRONG)
    few = {number: counts[number] for number in IDS if counts[number] < (6 if number in ("3.3", "3.5", "3.7") else 3)}
    assert not few


def test_the_sample_names_wrong_answers_that_exist() -> None:
    assert {(answer.exercise, answer.name) for answer in WRONG} >= SAMPLE


@pytest.mark.parametrize("exercise_id", [number for number, each in exercises("03").items() if each.par is not None])
def test_par_is_what_our_own_solution_needs(exercise_id: str) -> None:
    exercise = exercises("03")[exercise_id]
    assert exercise.par is not None
    names = namespace(number="03")
    score = measure(exercise.par, {name: names[name] for name in exercise.functions})
    assert score.bytes_sent == exercise.par.score.bytes_sent
    assert score.time_ns == pytest.approx(exercise.par.score.time_ns, rel=0.02)
    assert score.peak_bytes == pytest.approx(exercise.par.score.peak_bytes, rel=0.1)
