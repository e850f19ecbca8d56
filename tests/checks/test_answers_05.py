"""Each exercise of lesson 05 proves four things: the answer passes, the stub says what it is, wrong answers are named,
and an answer in another style passes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import labkit
from labkit.checks.notebook import CheckResult
from labkit.checks.par import measure
from labkit.checks.registry import exercises
from tests.checks.lesson_cells import namespace
from tests.checks.wrong_answer import WrongAnswer
from tests.checks.wrong_answers_05 import WRONG

IDS = tuple(exercises("05"))
ANSWERS = Path(__file__).parents[1] / "submissions" / "answers_05"
STYLES = ("right_in_other_words", "right_with_separate_calls")
# One process world for each of these is enough for every commit; all others run with `make test-all`.
SAMPLE = {
    ("5.2", "the last stage only"),
    ("5.3", "f passes the gradient on"),
    ("5.8", "divided by M"),
    ("5.8", "one blocking message at a time"),
    ("5.8", "all forwards, then all backwards, whatever the schedule"),
    ("5.8", "keeps all outputs"),
    ("5.11", "adds up"),
}


def check(exercise_id: str, names: dict[str, Any]) -> CheckResult:
    return labkit.check(exercise_id, *[names[name] for name in exercises("05")[exercise_id].functions])


def mistake_of(result: CheckResult) -> str:
    return result.shown.verdict.mistake if result.shown and result.shown.verdict else ""


def answers_in_style(style: str) -> dict[str, str]:
    text = (ANSWERS / f"{style}.py").read_text(encoding="utf-8")
    return dict(re.findall(r"^# %% (5\.\d+)\n(.*?)(?=^# %% |\Z)", text, re.M | re.S))


def _real(exercise_id: str) -> list[pytest.MarkDecorator]:
    """Return the mark of what costs a second; the answers run on ranks in the notebook and in the grader too."""
    return [pytest.mark.long] if exercises("05")[exercise_id].distributed else []


@pytest.mark.parametrize("exercise_id", IDS)
def test_the_lessons_answer_passes_its_check(exercise_id: str) -> None:
    result = check(exercise_id, namespace(number="05"))
    assert result.passed, result


@pytest.mark.parametrize("exercise_id", IDS)
def test_the_stub_fails_with_its_own_message(exercise_id: str) -> None:
    result = check(exercise_id, namespace(solved=False, number="05"))
    assert not result.passed
    assert f"Not done yet. Exercise {exercise_id}: " in repr(result), result


@pytest.mark.parametrize(
    ("style", "exercise_id"),
    [
        pytest.param(style, number, marks=[] if (style, number) == (STYLES[1], "5.8") else _real(number))
        for style in STYLES
        for number in answers_in_style(style)
    ],
)
def test_an_answer_in_another_style_passes(exercise_id: str, style: str) -> None:
    result = check(exercise_id, namespace(extra="\n\n".join(answers_in_style(style).values()), number="05"))
    assert result.passed, result


def _marks(answer: WrongAnswer) -> list[pytest.MarkDecorator]:
    return [] if (answer.exercise, answer.name) in SAMPLE else _real(answer.exercise)


@pytest.mark.parametrize(
    "answer", [pytest.param(each, id=f"{each.exercise} {each.name}", marks=_marks(each)) for each in WRONG]
)
def test_a_wrong_answer_fails_with_a_hint_that_names_the_mistake(answer: WrongAnswer) -> None:
    result = check(answer.exercise, namespace(extra=answer.source, number="05"))
    assert not result.passed
    assert mistake_of(result) == answer.mistake, result
    assert "hint: " in repr(result)


def test_every_exercise_has_wrong_answers_enough() -> None:
    counts = Counter(answer.exercise for answer in WRONG)
    assert not {number: counts[number] for number in IDS if counts[number] < (6 if number == "5.8" else 3)}


def test_the_sample_names_wrong_answers_that_exist() -> None:
    assert {(answer.exercise, answer.name) for answer in WRONG} >= SAMPLE


def test_par_is_what_the_solution_needs() -> None:
    names = namespace(number="05")
    for exercise in exercises("05").values():
        if exercise.par is not None:
            wanted = {name: names[name] for name in (*exercise.functions, *exercise.given)}
            measure(exercise.par, wanted)  # the first virtual run of a process lets go of some tensors a little later
            assert measure(exercise.par, wanted) == exercise.par.score, exercise.id
