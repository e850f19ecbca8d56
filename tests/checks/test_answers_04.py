"""Each exercise of lesson 04 proves four things: the answer passes, the stub says what it is, wrong answers are named,
and an answer in another style passes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import labkit
from labkit.checks.notebook import CheckResult
from labkit.checks.par import measure
from labkit.checks.registry import exercises
from tests.checks.lesson_cells import namespace
from tests.checks.wrong_answer import WrongAnswer
from tests.checks.wrong_answers_04 import WRONG
from tests.submissions.making import style

IDS = tuple(exercises("04"))
STYLES = ("right_in_other_words", "right_with_conditions")
# One of these for each way of driving is enough for every commit; all others run with `make test-all`.
SAMPLE = {
    ("4.1", "one message of each worker"),
    ("4.2", "keeps the old future"),
    ("4.3", "no lock"),
    ("4.4", "leave lets nobody go"),
    ("4.4", "the answer of the push"),
    ("4.4", "strictly less"),
    ("4.5", "late ones wait"),
    ("4.7", "modulo at the end"),
    ("4.8", "waits each time"),
    ("4.10", "pushes the whole"),
    ("4.11", "acknowledges at once"),
    ("4.12", "one name"),
}


def check(exercise_id: str, names: dict[str, Any]) -> CheckResult:
    return labkit.check(exercise_id, *[names[name] for name in exercises("04")[exercise_id].functions])


def mistake_of(result: CheckResult) -> str:
    return result.shown.verdict.mistake if result.shown and result.shown.verdict else ""


@pytest.mark.parametrize("exercise_id", IDS)
def test_the_lessons_answer_passes_its_check(exercise_id: str) -> None:
    result = check(exercise_id, namespace(number="04"))
    assert result.passed, result


@pytest.mark.parametrize("exercise_id", IDS)
def test_the_stub_fails_with_its_own_message(exercise_id: str) -> None:
    result = check(exercise_id, namespace(solved=False, number="04"))
    assert not result.passed
    assert f"Not done yet. Exercise {exercise_id}: " in repr(result), result


@pytest.mark.parametrize(("name", "exercise_id"), [(name, number) for name in STYLES for number in style("04", name)])
def test_an_answer_in_another_style_passes(name: str, exercise_id: str) -> None:
    result = check(exercise_id, namespace(extra="\n\n".join(style("04", name).values()), number="04"))
    assert result.passed, result


def _marks(answer: WrongAnswer) -> list[pytest.MarkDecorator]:
    return [] if (answer.exercise, answer.name) in SAMPLE else [pytest.mark.long]


@pytest.mark.parametrize(
    "answer", [pytest.param(each, id=f"{each.exercise} {each.name}", marks=_marks(each)) for each in WRONG]
)
def test_a_wrong_answer_fails_with_a_hint_that_names_the_mistake(answer: WrongAnswer) -> None:
    result = check(answer.exercise, namespace(extra=answer.source, number="04"))
    assert not result.passed
    assert mistake_of(result) == answer.mistake, result
    assert "hint: " in repr(result)


def test_every_exercise_has_wrong_answers_enough() -> None:
    counts = Counter(answer.exercise for answer in WRONG)
    assert not {number: counts[number] for number in IDS if counts[number] < (6 if number == "4.4" else 3)}


def test_the_sample_names_wrong_answers_that_exist() -> None:
    assert {(answer.exercise, answer.name) for answer in WRONG} >= SAMPLE


def test_par_is_what_the_solution_needs() -> None:
    names = namespace(number="04")
    for exercise in exercises("04").values():
        if exercise.par is not None:
            wanted = {name: names[name] for name in (*exercise.functions, *exercise.given)}
            measure(exercise.par, wanted)  # the first virtual run of a process lets go of some tensors a little later
            assert measure(exercise.par, wanted) == exercise.par.score, exercise.id
