"""Whether a submission is another lesson's notebook: then it is told, and nothing is graded."""

from __future__ import annotations

from collections import Counter

from labkit.errors import LessonError
from labkit.grading.course import Course
from labkit.grading.submission import SubmittedNotebook
from labkit.lessons.manifest import Manifest, read


def other_lesson(notebook: SubmittedNotebook, course: Course) -> str:
    """Return in words which lesson's notebook was handed in, or "" where it is the course's or nothing tells."""
    there = Counter(cell.exercise for cell in notebook.cells if cell.exercise)
    ours = {str(cell["id"]) for cell in course.pristine["cells"] if "labkit" in cell["metadata"]}
    own = {exercise.id for exercise in course.manifest.exercises}
    if own & set(there) or ours & {cell.id for cell in notebook.cells}:
        return ""
    found = _named(notebook.lesson, there, course)
    if found is None or found.lesson == course.name:
        return ""
    return (
        f"This is the notebook of {found.lesson}, not of {course.name}, so nothing was graded. Hand in the notebook "
        f"{course.name}.ipynb."
    )


def _named(lesson: str, there: Counter[str], course: Course) -> Manifest | None:
    """Return the lesson that a notebook names, else the one most of its exercises are of."""
    others = []
    for path in sorted(course.notebook.parent.glob("[0-9][0-9]_*.ipynb")):
        try:
            others.append(read(path))
        except LessonError:
            continue
    named = next((each for each in others if each.lesson == lesson), None)
    if named is not None:
        return named
    shared = {each.lesson: sum(there[exercise.id] for exercise in each.exercises) for each in others}
    most = max(shared, key=shared.__getitem__, default="")
    return next((each for each in others if each.lesson == most and shared[most]), None)
