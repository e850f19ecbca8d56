"""Where the exercises of each lesson are."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from labkit.checks.exercise import Exercise
from labkit.errors import ConfigError

_LESSONS = {
    "00": "labkit.checks.lesson_00",
    "01": "labkit.checks.lesson_01",
    "02": "labkit.checks.lesson_02",
    "03": "labkit.checks.lesson_03",
    "04": "labkit.checks.lesson_04",
    "05": "labkit.checks.lesson_05",
    "06": "labkit.checks.lesson_06",
}


@cache
def exercises(lesson: str) -> dict[str, Exercise]:
    """Return the exercises of a lesson by id, in the order of the lesson.

    Args:
        lesson: The lesson's number, "02"; a longer name such as "02_ring_all_reduce" counts by its number.

    Raises:
        ConfigError: If the lesson has no checks.
    """
    number = lesson.split("_")[0].zfill(2)
    if number not in _LESSONS:
        raise ConfigError(f"lesson {lesson!r} has no checks; lessons with checks: {', '.join(sorted(_LESSONS))}")
    found: tuple[Exercise, ...] = import_module(_LESSONS[number]).EXERCISES
    return {exercise.id: exercise for exercise in found}


def find(exercise_id: str) -> Exercise:
    """Return the exercise with this id, "2.6".

    Raises:
        ConfigError: If there is none; the message lists what there is.
    """
    head = str(exercise_id).split(".")[0]
    if head.isdigit() and head.zfill(2) in _LESSONS:
        known = exercises(head.zfill(2))
        if exercise_id in known:
            return known[exercise_id]
        raise ConfigError(f"there is no exercise {exercise_id!r}; lesson {head.zfill(2)} has {', '.join(known)}")
    raise ConfigError(
        f"there is no exercise {exercise_id!r}; an id is a lesson's number, a dot and a number, "
        f'as in "2.3"; lessons with checks: {", ".join(sorted(_LESSONS))}'
    )
