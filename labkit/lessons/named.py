"""``labkit.hint``, and which exercise a learner means by a name, a number or a function."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from labkit.checks import notebook
from labkit.checks.notebook import Hint
from labkit.errors import LessonError
from labkit.lessons.course import brought_course
from labkit.lessons.manifest import Exercise, Manifest, from_metadata
from labkit.words import join


def hint(exercise_id: object) -> Hint:
    """Return the next of the exercise's three hints: a nudge, the idea, almost the line. Each call goes one further.

    Args:
        exercise_id: Its slug, "ring_plan"; its number, "2.3", or a function it asks for will do, too.
    """
    named = exercises_called(exercise_id)
    if len(named) > 1:
        calls = join(f'labkit.hint("{each.id}") (Exercise {each.number})' for each in named)
        return Hint(f"Several exercises ask for {exercise_id}: {calls}.")
    if named and not named[0].is_code:
        return Hint(_of_question(named[0]))
    return notebook.hint(named[0].id if named else exercise_id)  # type: ignore[arg-type]


def _of_question(exercise: Exercise) -> str:
    what = f"{exercise.id} (Exercise {exercise.number})"
    if exercise.kind == "write":
        return f"{what} asks for sentences and has no hints."
    return f'{what} is a question. Answer it with labkit.answer("{exercise.id}", ...): a wrong answer brings a hint.'


def exercises_called(name: object) -> list[Exercise]:
    """Return the exercises that have this slug or number, or ask for this function; [] where none does."""
    text = getattr(name, "__name__", "") if callable(name) else name
    if not isinstance(text, str) or not text:
        return []
    every = [each for manifest in _manifests(Path.cwd()) for each in manifest.exercises]
    for fits in (lambda each: each.id == text, lambda each: each.number == text, lambda each: text in each.provides):
        if found := list(filter(fits, every)):
            return found
    return []


def in_folder(folder: Path) -> list[Manifest]:
    """Return the manifests of the lessons' notebooks in a folder; what cannot be read is none of ours."""
    found = []
    for path in sorted(folder.glob("[0-9][0-9]_*.ipynb")):
        try:
            found.append(from_metadata(json.loads(path.read_text(encoding="utf-8"))["metadata"], path.name))
        except (OSError, ValueError, KeyError, TypeError, LessonError):
            continue
    return found


def _manifests(folder: Path) -> Sequence[Manifest]:
    return in_folder(folder) or _brought()


@cache
def _brought() -> tuple[Manifest, ...]:
    return tuple(in_folder(brought_course() / "notebooks"))
