"""Where the exercises of each lesson are."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache
from importlib import import_module

from labkit.checks.exercise import Exercise
from labkit.errors import ConfigError
from labkit.slugs import names_lesson

# The one place that knows in which folder a lesson's checks lie. It goes when folders bear the lessons' slugs.
_FOLDERS = {
    "start_here": "lesson_00",
    "data_parallel": "lesson_01",
    "ring_all_reduce": "lesson_02",
    "ddp": "lesson_03",
    "parameter_server": "lesson_04",
    "pipeline": "lesson_05",
    "gradient_compression": "lesson_06",
}


def exercises(lesson: str) -> dict[str, Exercise]:
    """Return the exercises of a lesson by slug, in the order of the lesson.

    Args:
        lesson: Its number, slug or full name: "02", "ring_all_reduce", "02_ring_all_reduce".

    Raises:
        ConfigError: If the lesson has no checks.
    """
    names = {slug: f"{folder.removeprefix('lesson_')}_{slug}" for slug, folder in _FOLDERS.items()}
    for slug, name in names.items():
        if names_lesson(name, lesson):
            return _of(slug)
    raise ConfigError(f"lesson {lesson!r} has no checks; lessons with checks: {', '.join(names.values())}")


def find(exercise_id: str) -> Exercise:
    """Return the exercise with this slug, "ring_sum".

    Raises:
        ConfigError: If there is none; the message names what comes near.
    """
    return beside(exercise_id)[exercise_id]


def beside(exercise_id: str) -> dict[str, Exercise]:
    """Return the exercises of the lesson that has this one, by slug.

    Raises:
        ConfigError: If there is none; the message names what comes near.
    """
    known: list[str] = []
    for found in _lessons():
        if exercise_id in found:
            return found
        known += found
    near = difflib.get_close_matches(str(exercise_id), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "the cell that checks an exercise says its name, 'chunk_bounds'"
    raise ConfigError(f"there is no exercise {exercise_id!r}; {hint}")


def _lessons() -> Iterator[dict[str, Exercise]]:
    return map(_of, _FOLDERS)


@cache
def _of(slug: str) -> dict[str, Exercise]:
    found: tuple[Exercise, ...] = import_module(f"labkit.checks.{_FOLDERS[slug]}").EXERCISES
    return {exercise.id: exercise for exercise in found}
