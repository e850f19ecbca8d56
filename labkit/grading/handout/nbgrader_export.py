"""A lesson as an assignment of nbgrader: its source version, with nbgrader's metadata and solution regions.

nbgrader makes the students' version from it. What labkit's own grader holds does not come along: nbgrader runs checks
in the student's own process and has no hidden cases of ours, so points there rest on the visible cases, and a bonus
counts towards full marks. An answer that a key judges is a solution, too, and a cell below it has its points; where it
has none, it stays as it is.

Source: nbgrader, "Creating and grading assignments" and its cell metadata, schema version 3.
"""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from typing import Any

import nbformat

from labkit.errors import LessonError
from labkit.lessons.course import find_course, select, source_files
from labkit.lessons.cuts import gap
from labkit.lessons.lesson import KEYED, TASKS, Cell, Lesson
from labkit.lessons.notebook import as_notebook, as_text
from labkit.lessons.source import load
from labkit.lessons.student import student_cells
from labkit.links import refuse_links

_BEGIN, _END = "### BEGIN SOLUTION", "### END SOLUTION"


def export_nbgrader(lesson: str, out: str | Path, course: str | Path | None = None) -> Path:
    """Write ``out/source/NN_slug/NN_slug.ipynb`` and return its path.

    Args:
        lesson: Its number or name.
        out: The folder of the nbgrader course.
        course: A folder in labkit's course, with ``solutions/``.

    Raises:
        LessonError: If there is no such lesson, or a check cell has no call of labkit.check.
    """
    root = find_course(Path(course) if course else None, sources=True)
    found = load(select(source_files(root), lesson))
    path = Path(out) / "source" / found.name / f"{found.name}.ipynb"
    refuse_links(path, "what is written as")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_text(nbgrader_notebook(found)), encoding="utf-8")
    return path


def nbgrader_notebook(lesson: Lesson) -> Any:
    """Return nbgrader's source version of a lesson, as an nbformat node."""
    cells = student_cells(lesson)
    notebook = as_notebook(lesson.manifest, cells, answers=False)
    points = {exercise.id: exercise.points for exercise in lesson.exercises}
    names = {exercise.id: f"{exercise.number}: {exercise.title}" for exercise in lesson.exercises}
    nodes: list[Any] = []
    for cell, node in zip(cells, notebook["cells"], strict=True):
        nodes.append(node)
        if cell.is_code_exercise:
            node["source"] = _with_regions(cell, f"Exercise {names[cell.exercise or '']}")
            node["metadata"]["nbgrader"] = _metadata(cell.id, solution=True)
        elif cell.role == "check" and cell.exercise is not None:
            node["source"] = _asserting(cell, lesson)
            node["metadata"]["nbgrader"] = _metadata(cell.id, grade=True, locked=True, points=points[cell.exercise])
        elif cell.role in KEYED and cell.exercise is not None:
            if worth := points[cell.exercise]:
                node["source"] = _answering(cell, f"Exercise {names[cell.exercise]}")
                node["metadata"]["nbgrader"] = _metadata(cell.id, solution=True)
                nodes.append(_answer_check(cell, worth))
        elif cell.role in TASKS and cell.exercise is not None:  # nbgrader has a person read these
            worth = points[cell.exercise]
            node["metadata"]["nbgrader"] = _metadata(
                cell.id, grade=True, solution=True, points=worth, cell_type=cell.kind
            )
        elif cell.role == "given":
            node["metadata"]["nbgrader"] = _metadata(cell.id, locked=True)
    notebook["cells"] = nodes
    return notebook


def _metadata(grade_id: str, **settings: Any) -> dict[str, Any]:
    plain = {"schema_version": 3, "grade_id": grade_id, "grade": False, "solution": False, "locked": False}
    return {**plain, "task": False, "cell_type": "code", **settings}


def _with_regions(cell: Cell, says: str) -> str:
    """Return a cell with its answers in nbgrader's regions, each below a comment that says which exercise it is.

    nbgrader puts a line that raises in place of a region, which must stand inside a function. A private piece of an
    answer at the left margin moves into the functions below it, unless there is none.
    """
    lines, start = cell.source.split("\n"), 0
    private: list[str] = []
    pieces: list[str] = []
    indented = any(lines[cut.offset].startswith(" ") for cut in cell.cuts)
    for cut in cell.cuts:
        pieces += lines[start : cut.offset]
        start = cut.offset + len(cut.lines) + 2
        indent = lines[cut.offset][: len(lines[cut.offset]) - len(lines[cut.offset].lstrip())]
        pieces.append(indent + gap(says, inside=False))
        if not indent and indented:
            private += cut.lines
            continue
        inside = textwrap.indent("\n".join(private), indent).split("\n") if private else []
        pieces += [indent + _BEGIN, *inside, *cut.lines, indent + _END]
    return "\n".join([*pieces, *lines[start:]])


def _answering(cell: Cell, says: str) -> str:
    """Return a cell whose answer is in nbgrader's region, below a comment with the call that is to be filled in."""
    lines = [f"# {says}", f"# {cell.exercise} = {cell.student_source}", _BEGIN]
    return "\n".join([*lines, f"{cell.exercise} = {cell.source}", _END])


def _answer_check(cell: Cell, points: int) -> Any:
    """Return the cell below an answer that fails where the answer is wrong; without an answer its name is not there."""
    found = nbformat.v4.new_code_cell(f"print({cell.exercise})\nassert {cell.exercise}.passed")  # type: ignore[no-untyped-call]
    found["id"] = f"check-{cell.id}"
    found["metadata"]["labkit"] = {"exercise": cell.exercise}
    found["metadata"]["nbgrader"] = _metadata(found["id"], grade=True, locked=True, points=points)
    return found


def _asserting(cell: Cell, lesson: Lesson) -> str:
    """Return a check cell that fails where the check does, so that nbgrader sees it."""
    lines: list[str] = []
    for statement in ast.parse(cell.source).body:
        text = ast.get_source_segment(cell.source, statement) or ""
        if text.startswith(("labkit.check(", "labkit.challenge(")):
            lines += [f"checked = {text}", "print(checked)", "assert checked.passed"]
        else:
            lines.append(text)
    if "print(checked)" not in lines:
        raise LessonError(f"{lesson.file}, cell {cell.id}: the check cell does not call labkit.check(...).")
    return "\n".join(lines)
