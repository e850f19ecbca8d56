"""The wrong answers of a lesson, as source that runs; labkit/exercises/LESSON/SLUG/wrong.py has them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module

from labkit.checks.rooms import exercises
from labkit.checks.wrong_answers import WrongAnswer as Written
from labkit.checks.wrong_answers import WrongAnswers
from tests.checks.lesson_cells import answers


@dataclass(frozen=True)
class WrongAnswer:
    """A wrong answer to one exercise.

    Attributes:
        lesson: Slug of the exercise's lesson.
        exercise: Its slug.
        written: What wrong.py says of it.
    """

    lesson: str
    exercise: str
    written: Written

    @property
    def name(self) -> str:
        """What is wrong, in a few words."""
        return self.written.name

    @property
    def mistake(self) -> str:
        """Name of the mistake that must be recognised."""
        return self.written.mistake

    @property
    def source(self) -> str:
        """Python source, run after the lesson's given and exercise cells."""
        return self.written.source(answers(self.lesson)[self.exercise])


@cache
def wrong_answers(lesson_slug: str) -> tuple[WrongAnswer, ...]:
    """Return the wrong answers of a lesson, exercise by exercise."""
    return tuple(
        WrongAnswer(lesson_slug, slug, each) for slug in exercises(lesson_slug) for each in written(lesson_slug, slug)
    )


def written(lesson_slug: str, exercise_id: str) -> WrongAnswers:
    """Return what wrong.py of an exercise holds."""
    found = import_module(f"labkit.exercises.{lesson_slug}.{exercise_id}.wrong").WRONG
    assert isinstance(found, WrongAnswers)
    return found
