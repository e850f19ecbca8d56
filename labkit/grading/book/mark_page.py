"""The page of a student's mark, made from the gradebook: it says what the mark is, and everything it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import selectinload

from labkit.grading.book.changes import late_words
from labkit.grading.book.class_time import shown
from labkit.grading.book.comments_and_requests import asking_text
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.book.reports import findings_of, page_of
from labkit.grading.book.standing import Grade
from labkit.grading.book.tables import Attempt, Mark, Report
from labkit.grading.reports.feedback import student_page


@dataclass(frozen=True)
class Tried:
    """One attempt on the page.

    Attributes:
        number: From 1.
        points: Before any penalty.
        when: In words.
        sha256: Of its file.
        counts: Whether it is the one the mark rests on.
        report: What the grading run left, or None where that was not kept.
        file_name: What its file was called, without its ending.
        marks: The newest of each exercise.
        regraded: Marks that replaced others: exercise, points before and now, and why.
        findings: What was said of it.
    """

    number: int
    points: float
    when: str
    sha256: str
    counts: bool
    report: Report | None
    file_name: str
    marks: Mapping[str, Mark]
    regraded: tuple[tuple[str, float, float, str], ...]
    findings: Mapping[str, Any]

    @property
    def page(self) -> bytes | None:
        """The page as the grading run wrote it, or None where it was not kept."""
        return page_of(self.report) if self.report else None


def mark_page(book: Gradebook, lesson: str, grade: Grade, title: str, *, desk: bool = False) -> bytes:
    """Return one HTML file that needs nothing else and can be mailed.

    Args:
        book: The gradebook.
        lesson: Whole name.
        grade: What the student has.
        title: The lesson's heading.
        desk: With boxes for comments and answers, for whoever grades.
    """
    tried = attempts(book, lesson, grade)
    kept = next((each for each in tried if each.counts), None)
    comments = book.comments(lesson, grade.student)
    asked = [each for each in book.requests(lesson) if each.student == grade.student]
    found: dict[str, Any] = dict(kept.findings) if kept else {"problem": "", "exercises": []}
    names = {each["id"]: f"{each['number']} {each['title']}" for each in found["exercises"]}
    others = [each for each in tried if not each.counts]
    if kept:
        found["exercises"] = [
            {
                **each,
                **_marked(
                    kept.marks.get(each["id"]), [words for exercise, words in comments if exercise == each["id"]]
                ),
                "requests": [request for request in asked if request.exercise == each["id"]],
                "earlier": [
                    (other.number, other.marks[each["id"]].points) for other in others if each["id"] in other.marks
                ],
                "ask": asking_text(lesson, each["id"], grade.student, kept.sha256),
            }
            for each in found["exercises"]
        ]
    mark = {
        "grade": grade,
        "late": late_words(grade.late_by) if grade.late_by else "",
        "tried": tried,
        "kept": kept,
        "earned": sum(grade.points.values()),
        "comments": [words for exercise, words in comments if exercise not in names],
        "adjustments": [(points, reason, shown(at, book.zone)) for points, reason, at in
                        book.adjustments(lesson, grade.student)],
        "requests": [each for each in asked if each.exercise not in names],
        "names": names,
    }  # fmt: skip
    return student_page(found, title, grade.student, grade.score, grade.max_score, mark, desk)


def _marked(mark: Mark | None, comments: list[str]) -> dict[str, Any]:
    """Return what the newest mark says of an exercise, and what graders wrote to it."""
    if mark is None:
        return {"comments": comments}
    reading, _, words = mark.reason.partition("\n") if mark.state == "read" else ("", "", "")
    said = [words] if words else []
    return {"points": mark.points, "state": mark.state, "reading": reading, "comments": [*said, *comments]}


def attempts(book: Gradebook, lesson: str, grade: Grade) -> list[Tried]:
    """Return all attempts of a student, oldest first."""
    return attempts_of(book, lesson, [grade]).get(grade.student, [])


def attempts_of(book: Gradebook, lesson: str, grades: Sequence[Grade]) -> dict[str, list[Tried]]:
    """Return all attempts of these students, by name, oldest first."""
    zone = book.zone
    counts = {grade.student: grade.attempt for grade in grades}
    wanted = select(Attempt).where(Attempt.lesson == lesson).order_by(Attempt.id)
    wanted = wanted.where(Attempt.student == grades[0].student) if len(grades) == 1 else wanted
    found: dict[str, list[Tried]] = {student: [] for student in counts}
    with book.reading() as session:
        options = (selectinload(Attempt.marks), selectinload(Attempt.times), selectinload(Attempt.reports))
        for row in session.scalars(wanted.options(*options)):
            if row.student in found:
                own = found[row.student]
                own.append(_tried(row, len(own) + 1, counts[row.student], zone))
        session.expunge_all()
    return found


def _tried(row: Attempt, number: int, counting: int, zone: tzinfo) -> Tried:
    marks: dict[str, Mark] = {}
    regraded = []
    for mark in row.marks:
        if (old := marks.get(mark.exercise)) is not None and mark.state not in ("read", "to_read"):
            regraded.append((mark.exercise, old.points, mark.points, mark.reason))
        marks[mark.exercise] = mark
    report = row.reports[-1] if row.reports else None
    return Tried(
        number,
        sum(mark.points for mark in marks.values()),
        shown(row.when, zone) if row.when else "at an unknown time",
        row.submission_sha256,
        number == counting,
        report,
        report.file_name if report else row.student,
        marks,
        tuple(regraded),
        findings_of(report) if report else {"problem": "", "exercises": _bare(marks)},
    )


def _bare(marks: Mapping[str, Mark]) -> list[dict[str, Any]]:
    """Return what is known of the exercises of an attempt whose report was not kept."""
    return [
        {"id": each.exercise, "number": "", "title": each.exercise, "worth": each.max_points} for each in marks.values()
    ]
