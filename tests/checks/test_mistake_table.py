"""Wrong answers and the mistakes that checks name fit each other; mistake_table.py prints them."""

from __future__ import annotations

import pytest

from labkit.checks.par import EXPOSED, TOO_LARGE
from labkit.checks.rooms import exercises, lessons
from labkit.checks.sweep import MISTAKES as SWEPT
from tests.checks.wrong_answers import wrong_answers

BY_CHANCE = {
    ("overlapped_ddp", "changed while it was on its way"),
    ("overlapped_ddp", "autograd read it on its way"),
    ("overlapped_ddp", "touched before wait() returned"),
    ("bucketed_ddp", "divided on its way"),
}
"""What a wrong answer makes in one run and not in the next; tests/checks/test_partly_right.py meets it every time."""


@pytest.mark.in_turn
@pytest.mark.parametrize("lesson", lessons())
def test_wrong_answers_stand_for_exercises_and_mistakes_that_exist(lesson: str) -> None:
    known = exercises(lesson)
    for answer in wrong_answers(lesson):
        assert answer.exercise in known, answer.name
        exercise = known[answer.exercise]
        names = set(exercise.mistakes) | set(SWEPT if exercise.sweep else ())
        names |= {EXPOSED, TOO_LARGE} if exercise.par is not None else set()
        assert answer.mistake in names, f"{answer.exercise}, {answer.name}: no mistake is called {answer.mistake!r}"


@pytest.mark.parametrize("lesson", lessons())
def test_every_exercise_meets_at_least_three_wrong_answers(lesson: str) -> None:
    answers = wrong_answers(lesson)
    counts = {each: sum(answer.exercise == each for answer in answers) for each in exercises(lesson)}
    assert not {each: count for each, count in counts.items() if count < 3}


@pytest.mark.parametrize("lesson", lessons())
def test_every_mistake_that_a_check_names_is_made_by_a_wrong_answer(lesson: str) -> None:
    met = {(answer.exercise, answer.mistake) for answer in wrong_answers(lesson)}
    named = {(each.id, mistake) for each in exercises(lesson).values() for mistake in each.mistakes}
    assert not named - met - BY_CHANCE
