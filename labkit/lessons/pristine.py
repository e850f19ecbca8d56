"""Notebooks as they were handed out: from the lesson's source, or from the copies a student release carries."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import nbformat

from labkit.errors import LessonError
from labkit.lessons.course import find_course, select, source_files
from labkit.lessons.figures import pictures_of
from labkit.lessons.manifest import from_metadata
from labkit.lessons.source import load
from labkit.lessons.student import student_notebook

ORIGINALS = ".originals"
TUTOR = "AGENTS.md"
"""Beside the notebooks: it tells an assistant to be a tutor, and not to solve."""
_MOST_NAMED = 14


def pristine(lesson: str, notebooks: Path) -> tuple[str, Any]:
    """Return the name (its file's stem) and the notebook of a lesson as it was handed out, as an nbformat node.

    Args:
        lesson: Its number, slug or name.
        notebooks: The folder where the learner works; a release has the originals in ``.originals/`` below it.

    Raises:
        LessonError: If neither a source nor an original of this lesson is to be found.
    """
    path = select(_handed_out(notebooks), lesson)
    return path.stem, _read(path)


def all_pristine(notebooks: Path) -> list[tuple[str, Any]]:
    """Return the name and the notebook of every lesson as it was handed out, in the order of their numbers.

    Args:
        notebooks: As for :func:`pristine`.

    Raises:
        LessonError: If nothing that was handed out is to be found.
    """
    return [(path.stem, _read(path)) for path in _handed_out(notebooks)]


def pristine_exercise(asked: str, notebooks: Path) -> tuple[str, Any, str]:
    """Return the name and the notebook of the lesson that has an exercise, and the exercise's slug.

    Args:
        asked: The exercise's slug or number.
        notebooks: As for :func:`pristine`.

    Raises:
        LessonError: If no lesson has it; the message lists what there is.
    """
    known: list[str] = []
    for path in _handed_out(notebooks):
        notebook = _read(path)
        exercises = from_metadata(notebook.metadata, path.name).exercises
        for each in exercises:
            if asked in (each.id, each.number):
                return path.stem, notebook, each.id
        known += [f"{each.number} {each.id}" for each in exercises]
    raise LessonError(f"There is no exercise {asked!r}; there are: {_nearest(asked, known) or 'none'}.")


def _nearest(asked: str, known: list[str]) -> str:
    """Return the exercises of the lesson whose number was asked for, else those with names like it, else the first."""
    lesson = f"{asked.partition('.')[0]}." if "." in asked else " "
    alike = difflib.get_close_matches(asked, [each.split()[1] for each in known], n=5)
    shown = [each for each in known if each.startswith(lesson)] or [each for each in known if each.split()[1] in alike]
    shown = shown or known
    more = f" and {len(shown) - _MOST_NAMED} more" if len(shown) > _MOST_NAMED else ""
    return ", ".join(shown[:_MOST_NAMED]) + more


def _read(path: Path) -> Any:
    if path.suffix == ".py":
        return student_notebook(load(path), pictures_of(path.with_suffix(".ipynb")))
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def _handed_out(notebooks: Path) -> list[Path]:
    """Return the originals that come with a release, else the lessons' sources."""
    if originals := sorted((notebooks / ORIGINALS).glob("[0-9][0-9]_*.ipynb")):
        return originals
    try:
        return source_files(find_course(notebooks, sources=True))
    except LessonError:
        raise LessonError(
            f"The notebooks as they were handed out are missing: there is neither {notebooks / ORIGINALS} nor the "
            "solutions/ of a full repository. Copy the folder notebooks/.originals from what your instructor gave you, "
            f"or run `labkit lab --folder {notebooks.parent}` if you installed labkit with pip: it writes what is "
            "missing and leaves your notebooks as they are."
        ) from None
