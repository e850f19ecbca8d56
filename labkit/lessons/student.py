"""The notebook a learner opens: answers cut, solution and slide-only cells left out, no outputs."""

from __future__ import annotations

from typing import Any

from labkit.lessons.lesson import Cell, Lesson
from labkit.lessons.notebook import as_notebook, as_text


def student_cells(lesson: Lesson) -> tuple[Cell, ...]:
    """Return the cells a learner gets; read their ``student_source``."""
    return tuple(cell for cell in lesson.cells if cell.role not in ("solution", "slide-only"))


def student_notebook(lesson: Lesson) -> Any:
    """Return the learner's notebook as an nbformat node."""
    return as_notebook(lesson.manifest, student_cells(lesson), answers=False)


def student_text(lesson: Lesson) -> str:
    """Return the learner's notebook as file content: the same bytes for the same source."""
    return as_text(student_notebook(lesson))
