"""The wrong answers of a lesson, as source that runs; labkit/exercises/LESSON/SLUG/wrong.py has them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module

from labkit.checks.rooms import exercises
from labkit.checks.wrong_answers import WrongAnswers
from tests.checks.lesson_cells import lesson


@dataclass(frozen=True)
class WrongAnswer:
    """A wrong answer to one exercise.

    Attributes:
        exercise: Its slug.
        name: What is wrong, in a few words.
        mistake: Name of the mistake that must be recognised.
        source: Python source, run after the lesson's given and exercise cells.
    """

    exercise: str
    name: str
    mistake: str
    source: str


@cache
def wrong_answers(lesson_slug: str) -> tuple[WrongAnswer, ...]:
    """Return the wrong answers of a lesson, exercise by exercise."""
    answers = {cell.exercise: cell.source for cell in lesson(lesson_slug).cells if cell.is_code_exercise}
    return tuple(
        WrongAnswer(slug, each.name, each.mistake, each.source(answers[slug]))
        for slug in exercises(lesson_slug)
        for each in written(lesson_slug, slug)
    )


def written(lesson_slug: str, exercise_id: str) -> WrongAnswers:
    """Return what wrong.py of an exercise holds."""
    found = import_module(f"labkit.exercises.{lesson_slug}.{exercise_id}.wrong").WRONG
    assert isinstance(found, WrongAnswers)
    return found
