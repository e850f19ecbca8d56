"""Wrong answers and the mistakes that checks name fit each other; mistake_table.py prints them."""

from __future__ import annotations

import pytest

from labkit.checks.registry import exercises
from labkit.checks.sweep import MISTAKES as SWEPT
from tests.checks.wrong_answer import wrong_answers

LESSONS = wrong_answers()


@pytest.mark.parametrize("number", LESSONS)
def test_wrong_answers_stand_for_exercises_and_mistakes_that_exist(number: str) -> None:
    known = exercises(number)
    for answer in LESSONS[number]:
        assert answer.exercise in known, answer.name
        exercise = known[answer.exercise]
        names = {mistake.name for mistake in exercise.mistakes} | set(SWEPT if exercise.sweep else ())
        assert answer.mistake in names, f"{answer.exercise}, {answer.name}: no mistake is called {answer.mistake!r}"


@pytest.mark.parametrize("number", LESSONS)
def test_every_exercise_meets_at_least_three_wrong_answers(number: str) -> None:
    counts = {each: sum(answer.exercise == each for answer in LESSONS[number]) for each in exercises(number)}
    assert not {each: count for each, count in counts.items() if count < 3}
