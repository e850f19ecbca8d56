"""Lessons of a gradebook keyed by slug: a book in use survives that lessons are renumbered."""

from __future__ import annotations

from sqlalchemy import String, delete, select, type_coerce, update
from sqlalchemy.orm import Session

from labkit.grading.book.tables import Adjustment, Attempt, Comment, Deadline, HandedIn, Mark, Report, Request
from labkit.slugs import lesson_slug

_OF_ATTEMPTS = (HandedIn, Mark, Report)
_OF_LESSONS = (Attempt, Adjustment, Comment, Deadline, Request)


def key_by_slug(session: Session) -> None:
    """Take the numbers out of the lessons of a book of layout 1 or 2, which wrote "02_ring_all_reduce".

    A file that was recorded under two numbers is one attempt afterwards: the first has what both were given.
    """
    whole = type_coerce(Attempt.lesson, String).label("whole")
    first: dict[tuple[str, str, str], int] = {}
    rows = session.execute(select(Attempt.id, whole, Attempt.student, Attempt.submission_sha256).order_by(Attempt.id))
    for attempt, name, student, sha256 in rows.all():
        kept = first.setdefault((lesson_slug(name), student, sha256), attempt)
        if kept == attempt:
            continue
        for table in _OF_ATTEMPTS:
            session.execute(update(table).where(table.attempt_id == attempt).values(attempt_id=kept))
        session.execute(delete(Attempt).where(Attempt.id == attempt))
    for owner in _OF_LESSONS:
        as_written = type_coerce(owner.lesson, String)
        for name in session.scalars(select(as_written).distinct()).all():
            if (slug := lesson_slug(name)) != name:
                session.execute(update(owner).where(as_written == name).values(lesson=slug))
