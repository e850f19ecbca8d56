"""The gradebook's tables. Rows are only ever added: what counts is found by reading the newest ones."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import DateTime, ForeignKey, LargeBinary, String, Text, TypeDecorator, UniqueConstraint
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from labkit.slugs import lesson_slug

VERSION = 3


class Moment(TypeDecorator[datetime]):
    """A time in UTC; SQLite keeps no zone, so it is put back when a row is read."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the time in UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the time with its zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class LessonKey(TypeDecorator[str]):
    """A lesson's slug; whole names lose their number, which is for people and changes from edition to edition."""

    impl = String(200)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the slug."""
        return None if value is None else lesson_slug(value)


class Table(DeclarativeBase):
    """What all tables share."""


class About(Table):
    """Which layout the tables have: one row."""

    __tablename__ = "about"
    version: Mapped[int] = mapped_column(primary_key=True)


class Setting(Table):
    """What holds for the whole class, such as its time zone; the newest of a name counts."""

    __tablename__ = "settings"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(40), index=True)
    value: Mapped[str] = mapped_column(Text)
    recorded_at: Mapped[datetime] = mapped_column(Moment)


class Attempt(Table):
    """A file that a student handed in.

    ``handed_in_at`` is of layout 1, which wrote the time of recording where it knew none: ``when`` says what counts.
    """

    __tablename__ = "attempts"
    __table_args__ = (UniqueConstraint("lesson", "student", "submission_sha256"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    lesson: Mapped[str] = mapped_column(LessonKey, index=True)
    student: Mapped[str] = mapped_column(String(300), index=True)
    submission_sha256: Mapped[str] = mapped_column(String(64))
    handed_in_at: Mapped[datetime] = mapped_column(Moment)
    recorded_at: Mapped[datetime] = mapped_column(Moment)
    marks: Mapped[list[Mark]] = relationship(order_by="Mark.id", back_populates="attempt")
    times: Mapped[list[HandedIn]] = relationship(order_by="HandedIn.id", back_populates="attempt")
    reports: Mapped[list[Report]] = relationship(order_by="Report.id", back_populates="attempt")

    @property
    def when(self) -> datetime | None:
        """When the file was handed in, as last said; None where nobody knows."""
        if self.times:
            return self.times[-1].handed_in_at
        return self.handed_in_at if self.handed_in_at != self.recorded_at else None

    @property
    def marked_late(self) -> bool:
        """Whether the system that it was handed in to called it late and said not when it came."""
        return bool(self.times) and self.times[-1].handed_in_at is None and self.times[-1].marked_late


class HandedIn(Table):
    """When a file was handed in, and who says so; the newest of an attempt counts."""

    __tablename__ = "times_handed_in"
    id: Mapped[int] = mapped_column(primary_key=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempts.id"), index=True)
    handed_in_at: Mapped[datetime | None] = mapped_column(Moment)
    marked_late: Mapped[bool] = mapped_column(default=False)
    source: Mapped[str] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text)
    recorded_at: Mapped[datetime] = mapped_column(Moment)
    attempt: Mapped[Attempt] = relationship(back_populates="times")


class Mark(Table):
    """What one exercise of an attempt earned when it was graded; the newest of an exercise counts."""

    __tablename__ = "marks"
    id: Mapped[int] = mapped_column(primary_key=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempts.id"), index=True)
    exercise: Mapped[str] = mapped_column(String(60))
    points: Mapped[float]
    max_points: Mapped[float]
    state: Mapped[str] = mapped_column(String(20))
    course_sha256: Mapped[str] = mapped_column(String(64))
    reason: Mapped[str] = mapped_column(Text)
    recorded_at: Mapped[datetime] = mapped_column(Moment)
    attempt: Mapped[Attempt] = relationship(back_populates="marks")


class RubricItem(Table):
    """What a reader added to a question's rubric while reading; the lesson's own items are not here."""

    __tablename__ = "rubric_items"
    __table_args__ = (UniqueConstraint("lesson", "exercise", "words"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    lesson: Mapped[str] = mapped_column(LessonKey, index=True)
    exercise: Mapped[str] = mapped_column(String(60))
    words: Mapped[str] = mapped_column(String(300))
    points: Mapped[int]
    who: Mapped[str] = mapped_column(Text)
    recorded_at: Mapped[datetime] = mapped_column(Moment)


class Adjustment(Table):
    """Points given or taken by hand, and why."""

    __tablename__ = "adjustments"
    id: Mapped[int] = mapped_column(primary_key=True)
    lesson: Mapped[str] = mapped_column(LessonKey, index=True)
    student: Mapped[str] = mapped_column(String(300), index=True)
    points: Mapped[float]
    reason: Mapped[str] = mapped_column(Text)
    recorded_at: Mapped[datetime] = mapped_column(Moment)


class Report(Table):
    """What a grading run said of an attempt; the newest counts, all are kept."""

    __tablename__ = "reports"
    id: Mapped[int] = mapped_column(primary_key=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempts.id"), index=True)
    file_name: Mapped[str] = mapped_column(String(300))
    findings: Mapped[bytes] = mapped_column(LargeBinary)
    page: Mapped[bytes] = mapped_column(LargeBinary)
    recorded_at: Mapped[datetime] = mapped_column(Moment)
    attempt: Mapped[Attempt] = relationship(back_populates="reports")


class Comment(Table):
    """What a grader wrote to a student."""

    __tablename__ = "comments"
    id: Mapped[int] = mapped_column(primary_key=True)
    lesson: Mapped[str] = mapped_column(LessonKey, index=True)
    student: Mapped[str] = mapped_column(String(300), index=True)
    exercise: Mapped[str] = mapped_column(String(60))
    words: Mapped[str] = mapped_column(Text)
    recorded_at: Mapped[datetime] = mapped_column(Moment)


class Request(Table):
    """A student asks that something be looked at again; without an answer it is open."""

    __tablename__ = "requests"
    id: Mapped[int] = mapped_column(primary_key=True)
    lesson: Mapped[str] = mapped_column(LessonKey, index=True)
    student: Mapped[str] = mapped_column(String(300), index=True)
    exercise: Mapped[str] = mapped_column(String(60))
    words: Mapped[str] = mapped_column(Text)
    recorded_at: Mapped[datetime] = mapped_column(Moment)
    answers: Mapped[list[Answer]] = relationship(order_by="Answer.id")


class Answer(Table):
    """What was answered to a request; the newest counts."""

    __tablename__ = "answers"
    id: Mapped[int] = mapped_column(primary_key=True)
    request_id: Mapped[int] = mapped_column(ForeignKey("requests.id"), index=True)
    words: Mapped[str] = mapped_column(Text)
    points: Mapped[float]
    recorded_at: Mapped[datetime] = mapped_column(Moment)


class FoundCase(Table):
    """Submissions that are alike, as `labkit copies` listed them."""

    __tablename__ = "found_cases"
    case: Mapped[str] = mapped_column(String(20), primary_key=True)
    names: Mapped[str] = mapped_column(Text)
    recorded_at: Mapped[datetime] = mapped_column(Moment)


class ClosedCase(Table):
    """Submissions that are alike, looked into: what came of it."""

    __tablename__ = "closed_cases"
    id: Mapped[int] = mapped_column(primary_key=True)
    case: Mapped[str] = mapped_column(String(20))
    note: Mapped[str] = mapped_column(Text)
    recorded_at: Mapped[datetime] = mapped_column(Moment)


class Deadline(Table):
    """When a lesson is due and what lateness costs; the newest of a lesson (and student) counts."""

    __tablename__ = "deadlines"
    id: Mapped[int] = mapped_column(primary_key=True)
    lesson: Mapped[str] = mapped_column(LessonKey, index=True)
    student: Mapped[str] = mapped_column(String(300))
    due_at: Mapped[datetime] = mapped_column(Moment)
    grace_minutes: Mapped[float]
    percent_per_day: Mapped[float]
    percent_at_most: Mapped[float]
    recorded_at: Mapped[datetime] = mapped_column(Moment)


class Person(Table):
    """Somebody in the class; the newest row of a name counts."""

    __tablename__ = "people"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(300), index=True)
    keys: Mapped[str] = mapped_column(Text)
    email: Mapped[str] = mapped_column(String(300))
    section: Mapped[str] = mapped_column(String(200))
    team: Mapped[str] = mapped_column(String(200))
    extra_minutes: Mapped[float | None]
    recorded_at: Mapped[datetime] = mapped_column(Moment)
