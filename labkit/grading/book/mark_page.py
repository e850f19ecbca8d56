"""The page of a student's mark, made from the gradebook: it says what the mark is, and everything it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import selectinload

from labkit.grading.book.changes import late_words
from labkit.grading.book.class_time import shown
from labkit.grading.book.comments_and_requests import asking_text
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.book.reports import findings_of, page_of
from labkit.grading.book.standing import Grade
from labkit.grading.book.tables import Attempt, Mark
from labkit.grading.reports.page import page


@dataclass(frozen=True)
class Tried:
    """One attempt on the page.

    Attributes:
        number: From 1.
        points: Before any penalty.
        when: In words.
        sha256: Of its file.
        counts: Whether it is the one the mark rests on.
        page: As the grading run wrote it, or None where it was not kept.
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
    page: bytes | None
    file_name: str
    marks: Mapping[str, Mark]
    regraded: tuple[tuple[str, float, float, str], ...]
    findings: Mapping[str, Any]


def mark_page(book: Gradebook, lesson: str, grade: Grade, title: str) -> bytes:
    """Return one HTML file that needs nothing else and can be mailed.

    Args:
        book: The gradebook.
        lesson: Whole name.
        grade: What the student has.
        title: The lesson's heading.
    """
    tried = attempts(book, lesson, grade)
    kept = next((each for each in tried if each.counts), None)
    comments = book.comments(lesson, grade.student)
    given = book.adjustments(lesson, grade.student)
    zone = book.zone
    exercises = [
        {
            "said": "",
            "source": "",
            "picture": "",
            "cases": [],
            "num_cases": 0,
            **each,
            "mark": kept.marks.get(each["id"]),
            "comments": [words for exercise, words in comments if exercise == each["id"]],
            "earlier": [
                (other.number, other.marks[each["id"]].points)
                for other in tried
                if not other.counts and each["id"] in other.marks
            ],
            "ask": asking_text(lesson, each["id"], grade.student, kept.sha256),
        }
        for kept in tried
        if kept.counts
        for each in kept.findings["exercises"]
    ]  # fmt: skip
    return page(
        "mark_page.html",
        title=title,
        grade=grade,
        late=late_words(grade.late_by) if grade.late_by else "",
        tried=tried,
        kept=kept,
        exercises=exercises,
        earned=sum(grade.points.values()),
        comments=[words for exercise, words in comments if not exercise],
        adjustments=[(points, reason, shown(at, zone)) for points, reason, at in given],
        requests=[each for each in book.requests(lesson) if each.student == grade.student],
    )


def attempts(book: Gradebook, lesson: str, grade: Grade) -> list[Tried]:
    """Return all attempts of a student, oldest first."""
    zone = book.zone
    found = []
    with book.reading() as session:
        rows = session.scalars(
            select(Attempt)
            .where(Attempt.lesson == lesson, Attempt.student == grade.student)
            .options(selectinload(Attempt.marks), selectinload(Attempt.times), selectinload(Attempt.reports))
            .order_by(Attempt.id)
        ).all()
        for number, row in enumerate(rows, start=1):
            marks: dict[str, Mark] = {}
            regraded = []
            for mark in row.marks:
                if (old := marks.get(mark.exercise)) is not None:
                    regraded.append((mark.exercise, old.points, mark.points, mark.reason))
                marks[mark.exercise] = mark
            report = row.reports[-1] if row.reports else None
            found.append(
                Tried(
                    number,
                    sum(mark.points for mark in marks.values()),
                    shown(row.when, zone) if row.when else "at an unknown time",
                    row.submission_sha256,
                    number == grade.attempt,
                    page_of(report) if report else None,
                    report.file_name if report else row.student,
                    marks,
                    tuple(regraded),
                    findings_of(report) if report else {"problem": "", "exercises": _bare(marks)},
                )
            )
        session.expunge_all()
    return found


def _bare(marks: Mapping[str, Mark]) -> list[dict[str, Any]]:
    """Return what is known of the exercises of an attempt whose report was not kept."""
    return [{"id": each.exercise, "number": "", "title": each.exercise, "state": each.state} for each in marks.values()]
