"""The table of mistakes against checks: how many wrong answers each exercise meets, and how many mistakes it names."""

from __future__ import annotations

import pytest

from labkit.checks.registry import exercises
from tests.checks.wrong_answer import wrong_answers

LESSONS = wrong_answers()
HEAD = "exercise  wrong answers  mistakes it names  of which met by one"


def _rows(number: str) -> list[str]:
    rows = []
    for exercise_id, exercise in exercises(number).items():
        answers = [answer for answer in LESSONS[number] if answer.exercise == exercise_id]
        names = {mistake.name for mistake in exercise.mistakes}
        met = len(names & {answer.mistake for answer in answers})
        rows.append(f"{exercise_id:8}  {len(answers):13}  {len(names):17}  {met:19}")
    return rows


def test_the_table_of_mistakes_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each wrong answer is proved to fail with its mistake's name by its lesson's test_answers_NN."""
    with capsys.disabled():
        print("\n" + "\n".join([HEAD, *(row for number in LESSONS for row in _rows(number))]))


@pytest.mark.parametrize("number", LESSONS)
def test_wrong_answers_stand_for_exercises_and_mistakes_that_exist(number: str) -> None:
    known = exercises(number)
    for answer in LESSONS[number]:
        assert answer.exercise in known, answer.name
        names = {mistake.name for mistake in known[answer.exercise].mistakes}
        assert answer.mistake in names, f"{answer.exercise}, {answer.name}: no mistake is called {answer.mistake!r}"


@pytest.mark.parametrize("number", LESSONS)
def test_every_exercise_meets_at_least_three_wrong_answers(number: str) -> None:
    counts = {each: sum(answer.exercise == each for answer in LESSONS[number]) for each in exercises(number)}
    assert not {each: count for each, count in counts.items() if count < 3}
