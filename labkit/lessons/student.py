"""The notebook a learner opens: answers cut, solution and slide-only cells left out, no outputs but figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nbformat

from labkit.lessons.lesson import Cell, Lesson
from labkit.lessons.notebook import as_notebook, as_text


def student_cells(lesson: Lesson) -> tuple[Cell, ...]:
    """Return the cells a learner gets; read their ``student_source``."""
    return tuple(cell for cell in lesson.cells if cell.role not in ("solution", "slide-only"))


def student_notebook(lesson: Lesson, pictures: Mapping[str, Any] | None = None) -> Any:
    """Return the learner's notebook as an nbformat node.

    Args:
        lesson: From its source.
        pictures: Of its figure cells, by id (labkit.lessons.figures); None for none.
    """
    notebook = as_notebook(lesson.manifest, student_cells(lesson), answers=False)
    for cell in notebook.cells:
        if (picture := (pictures or {}).get(cell.id)) is not None and "figure" in cell.metadata.get("tags", ()):
            cell.outputs = [nbformat.from_dict(picture)]  # type: ignore[no-untyped-call]
    return notebook


def student_text(lesson: Lesson, pictures: Mapping[str, Any] | None = None) -> str:
    """Return the learner's notebook as file content: the same bytes for the same source and pictures."""
    return as_text(student_notebook(lesson, pictures))
