"""A lesson as others may read it: the learner's version, with what the executed solution put out and tells no answer.

What `labkit.answer`, `labkit.check` and `labkit.challenge` say of the solution is none of them: a verdict is an answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat

from labkit.errors import LessonError
from labkit.lessons.code import judges
from labkit.lessons.lesson import KEYED, Lesson
from labkit.lessons.student import student_notebook


def shown_notebook(lesson: Lesson, solution: Path) -> Any:
    """Return the student notebook as an nbformat node whose cells carry what the solution's cells put out.

    A guess stands as the solution wrote it down: what is revealed after it speaks of that one.

    Args:
        lesson: The lesson, from its source.
        solution: Its executed notebook.

    Raises:
        LessonError: If the executed notebook is not there.
    """
    if not solution.is_file():
        raise LessonError(f"There is no executed notebook {solution}; `labkit build {lesson.name[:2]}` writes it.")
    executed = nbformat.read(solution, as_version=4)  # type: ignore[no-untyped-call]
    outputs = {cell.id: cell for cell in executed.cells if cell.cell_type == "code"}
    notebook = student_notebook(lesson)
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.id in outputs:
            tags = cell.metadata.get("tags", ())
            if not {*KEYED, "check"} & set(tags) and not judges(cell.source):
                cell.outputs = outputs[cell.id].outputs
            if "predict" in tags:
                cell.source = outputs[cell.id].source
            cell.execution_count = outputs[cell.id].execution_count
    return notebook
