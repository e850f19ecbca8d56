"""Notebooks as they were handed out: from the lesson's source, or from the copies a student release carries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat

from labkit.errors import LessonError
from labkit.lessons.course import find_course, select, source_files
from labkit.lessons.source import load
from labkit.lessons.student import student_notebook

ORIGINALS = ".originals"


def pristine(lesson: str, notebooks: Path) -> tuple[str, Any]:
    """Return the name (its file's stem) and the notebook of a lesson as it was handed out, as an nbformat node.

    Args:
        lesson: Its number or name.
        notebooks: The folder where the learner works; a release has the originals in ``.originals/`` below it.

    Raises:
        LessonError: If neither a source nor an original of this lesson is to be found.
    """
    originals = sorted((notebooks / ORIGINALS).glob("[0-9][0-9]_*.ipynb"))
    if originals:
        path = select(originals, lesson)
        return path.stem, nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    try:
        sources = source_files(find_course(notebooks, sources=True))
    except LessonError:
        raise LessonError(
            f"The notebooks as they were handed out are not to be found: there is no {notebooks / ORIGINALS}"
            " (a student release has it), nor a full repository's solutions/."
        ) from None
    path = select(sources, lesson)
    return path.stem, student_notebook(load(path))
