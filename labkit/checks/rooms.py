"""Where exercises are: each in a folder of its own, found by name, with no list to extend.

    labkit/exercises/LESSON/SLUG/exercise.py    EXERCISE: cases, what to find, mistakes, hints
    labkit/exercises/LESSON/SLUG/driver.py      drive: all that a rank gets of it
    labkit/exercises/LESSON/SLUG/hidden.py      cases: what points are given for; see hidden.py here
    labkit/exercises/LESSON/SLUG/wrong.py       WRONG: what a check must name the mistake of; see wrong_answers.py

The last two, and hidden_NAME.py in a lesson's folder, stay with instructors: kept_back.py.

A course may bring exercises of its own, laid out alike; see `own_package`.
"""

from __future__ import annotations

import difflib
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from labkit.checks.exercise import Exercise
from labkit.errors import ConfigError

LABKIT = "labkit.exercises"
COURSE = "course_exercises"
_NUMBER = re.compile(r"^\d\d_")


def exercises(lesson: str, package: str = LABKIT) -> dict[str, Exercise]:
    """Return the exercises of a lesson by slug, in the order of the alphabet.

    Args:
        lesson: Its slug or full name: "ring_all_reduce", "02_ring_all_reduce".
        package: Where to look: labkit's own, or what `own_package` returned.

    Raises:
        ConfigError: If the lesson has no exercises.
    """
    slug = _NUMBER.sub("", lesson)
    found = [room for name, room in _rooms(package) if name == slug]
    if not found:
        there = ", ".join(sorted({name for name, _ in _rooms(package)})) or "none"
        raise ConfigError(f"lesson {lesson!r} has no exercises to check; lessons with exercises: {there}")
    return {room: _load(package, slug, room) for room in found}


def find(exercise_id: str) -> Exercise:
    """Return labkit's exercise of this slug, "ring_sum".

    Raises:
        ConfigError: If there is none; the message names what comes near.
    """
    return _load(LABKIT, lesson_of(exercise_id), exercise_id)


def lesson_of(exercise_id: str) -> str:
    """Return the slug of the lesson that has this exercise.

    Raises:
        ConfigError: If none has; the message names what comes near.
    """
    rooms = {room: lesson for lesson, room in _rooms(LABKIT)}
    if exercise_id in rooms:
        return rooms[exercise_id]
    near = difflib.get_close_matches(str(exercise_id), rooms, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "the name is in the cell that checks the exercise"
    raise ConfigError(f"there is no exercise {exercise_id!r}; {hint}")


def folder_of(exercise_id: str) -> Path:
    """Return the folder of labkit's exercise of this slug.

    Raises:
        ConfigError: If there is none; the message names what comes near.
    """
    lesson = lesson_of(exercise_id)
    return next(
        path.parent
        for folder in map(Path, import_module(LABKIT).__path__)
        for path in folder.glob(f"{lesson}/{exercise_id}/exercise.py")
    )


def lessons(package: str = LABKIT) -> list[str]:
    """Return the slugs of the lessons that have exercises, sorted."""
    return sorted({lesson for lesson, _ in _rooms(package)})


def own_package(folder: Path) -> str:
    """Return the name of the package that a course's own exercises make: what to call their modules by, and ask here.

    Args:
        folder: The course's ``exercises/``.
    """
    package = sys.modules.get(COURSE)
    if package is None or list(package.__path__) != [str(folder)]:
        for name in [name for name in sys.modules if name.partition(".")[0] == COURSE]:
            del sys.modules[name]
        package = ModuleType(COURSE, "A course's own exercises.")
        package.__path__ = [str(folder)]
        sys.modules[COURSE] = package
        _load.cache_clear()
    return COURSE


def driver_module(package: str, lesson: str, exercise_id: str) -> str:
    """Return the name of the module that a rank gets of an exercise."""
    return f"{package}.{lesson}.{exercise_id}.driver"


def _rooms(package: str) -> list[tuple[str, str]]:
    """Return (lesson, slug) of each folder with an exercise, sorted."""
    folders = map(Path, import_module(package).__path__)
    return sorted((path.parts[-3], path.parts[-2]) for folder in folders for path in folder.glob("*/*/exercise.py"))


@cache
def _load(package: str, lesson: str, exercise_id: str) -> Exercise:
    found = import_module(f"{package}.{lesson}.{exercise_id}.exercise").EXERCISE
    assert isinstance(found, Exercise)
    if found.id != exercise_id:
        raise ConfigError(
            f"{package}.{lesson}.{exercise_id} has the id {found.id!r}; an exercise has the name of its module"
        )
    return found
