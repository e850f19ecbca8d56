"""The class as the gradebook has it: a line for each student, of the attempt that counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from labkit.grading.book.gradebook import Gradebook
from labkit.grading.book.mark_page import Tried, attempts_of
from labkit.grading.book.standing import Grade
from labkit.grading.book.tables import Mark
from labkit.grading.reports.class_page import Line
from labkit.grading.reports.results import GradedExercise, GradedSubmission


def class_lines(book: Gradebook, lesson: str, grades: Sequence[Grade], pages: Mapping[str, str]) -> list[Line]:
    """Return a line for each student.

    Args:
        book: The gradebook.
        lesson: Whole name.
        grades: What they have.
        pages: Where each student's page is, from the class's.
    """
    open_ = Counter(each.student for each in book.requests(lesson) if not each.answer)
    tried = attempts_of(book, lesson, grades)
    lines = []
    for grade in grades:
        kept = next((each for each in tried[grade.student] if each.counts), None)
        late = f"{grade.percent_lost:g} % off" if grade.percent_lost else "late" if grade.marked_late else ""
        result = _result(lesson, grade.student, kept) if kept else None
        lines.append(Line(grade.student, quote(pages[grade.student]), grade.score, result, late, open_[grade.student]))
    return lines


def _result(lesson: str, student: str, kept: Tried) -> GradedSubmission:
    found = kept.findings
    exercises = tuple(_exercise(each, kept.marks.get(each["id"])) for each in found["exercises"])
    return GradedSubmission(
        student, lesson, kept.sha256, "", exercises, found["problem"], lost=str(found.get("lost", ""))
    )


def _exercise(found: Mapping[str, Any], mark: Mark | None) -> GradedExercise:
    """Return what was found of an exercise, with the points and the state of its newest mark."""
    return GradedExercise(
        found["id"],
        mark.points if mark else 0.0,
        mark.max_points if mark else 0.0,
        mark.state if mark else "not_graded",
        *(str(found.get(name, "")) for name in ("title", "said", "mistake", "number", "written", "pack")),
    )
