"""What a student has for a lesson, worked out from the rows of the gradebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from labkit.grading.book.lateness import Lateness
from labkit.grading.book.tables import Attempt, Deadline


@dataclass(frozen=True)
class Grade:
    """What a student has for a lesson.

    Attributes:
        student: Name.
        score: Points that count: those of the attempt kept, less what lateness costs, plus adjustments.
        max_score: Full marks, without bonus.
        points: Of the attempt kept, by exercise, before any penalty.
        percent_lost: What lateness costs the attempt kept.
        adjusted: Sum of the points given or taken by hand.
        num_attempts: Files handed in.
        handed_in_at: When the attempt kept was; None where nobody knows, or there is none.
        marked_late: Its file is marked late by the system it was handed in to, which does not say when.
        late_by: How long after it was due; nothing where it was in time or nobody knows.
        attempt: Which attempt is kept, from 1; 0 without any.
    """

    student: str
    score: float
    max_score: float
    points: Mapping[str, float] = field(default_factory=dict)
    percent_lost: float = 0.0
    adjusted: float = 0.0
    num_attempts: int = 0
    handed_in_at: datetime | None = None
    marked_late: bool = False
    late_by: timedelta = timedelta()
    attempt: int = 0


def deadlines(rows: Iterable[Deadline]) -> dict[str, Lateness]:
    """Return the newest deadline of each student; "" is everybody's."""
    return {
        row.student: Lateness(
            row.due_at, timedelta(minutes=row.grace_minutes), row.percent_per_day, row.percent_at_most
        )
        for row in rows
    }


def standing(student: str, attempts: list[Attempt], lateness: Lateness | None, adjusted: float, keep: str) -> Grade:
    """Return the grade from the attempt that counts."""
    tried = []
    all_known = all(attempt.when for attempt in attempts)
    for attempt in attempts:
        marks = {mark.exercise: mark for mark in attempt.marks}
        lost = lateness.percent_lost(attempt.when) if lateness and attempt.when else 0.0
        earned = sum(mark.points for mark in marks.values()) * (1 - lost / 100)
        order = (earned,) if keep == "best" else _order(attempt, all_known)
        tried.append((order, attempt, marks, lost, earned))
    _, attempt, marks, lost, earned = max(tried, key=lambda each: each[0])
    return Grade(
        student=student,
        score=round(earned + adjusted, 6),
        max_score=sum(mark.max_points for mark in marks.values()),
        points={exercise: mark.points for exercise, mark in marks.items()},
        percent_lost=lost,
        adjusted=adjusted,
        num_attempts=len(attempts),
        handed_in_at=attempt.when,
        marked_late=attempt.marked_late,
        attempt=1 + attempts.index(attempt),
        late_by=max(timedelta(), attempt.when - lateness.due_at) if lateness and attempt.when else timedelta(),
    )


def _order(attempt: Attempt, all_known: bool) -> tuple[float, ...]:
    """Return what the latest attempt has most of: its time, or where a time is unknown its place in the book."""
    return (attempt.when.timestamp(), attempt.id) if all_known and attempt.when else (attempt.id,)
