"""A grading run on its way into the gradebook: new attempts, marks and hand-in times, and what changes by them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from labkit.errors import ConfigError
from labkit.grading.book.class_time import shown
from labkit.grading.book.file_names import of_system
from labkit.grading.book.reports import report_of
from labkit.grading.book.tables import Attempt, HandedIn, Mark
from labkit.grading.reports.results import GradedSubmission


@dataclass(frozen=True)
class Recorded:
    """What recording a grading run brought.

    Attributes:
        new_attempts: Files seen for the first time.
        regraded: Marks that changed for files seen before, as (student, exercise, points before, points now).
        unchanged: Files whose marks are as they were.
        times: Files seen before of which it is now said when they were handed in, or said otherwise.
        unknown: Students of whose new files nobody knows when they were handed in; a team's are named for one file.
        num_unknown: How many files that are.
        nobodys: Files that were not recorded: of nobody in the roster, or of more than one.
    """

    new_attempts: int
    regraded: tuple[tuple[str, str, float, float], ...]
    unchanged: int
    times: int = 0
    unknown: tuple[str, ...] = ()
    nobodys: tuple[str, ...] = ()
    num_unknown: int = 0


@dataclass(frozen=True)
class About:
    """What is said of all files of a run.

    Attributes:
        source: Who says when they were handed in.
        reason: Why marks and times of files seen before may change; "" where they may not.
        exercises: Slugs of those whose marks may change; () for all.
        folder: Where the run left its reports, None where they are not kept.
        now: When this is recorded.
    """

    source: str
    reason: str
    exercises: Collection[str]
    folder: Path | None
    now: datetime


@dataclass
class Recording:
    """One run while it is added, file by file; `done` says what came of it, or why nothing may."""

    session: Session
    about: About
    new: int = 0
    unchanged: int = 0
    times: int = 0
    unknown: list[tuple[str, str]] = field(default_factory=list)
    moved: list[tuple[str, datetime, datetime]] = field(default_factory=list)
    changes: list[tuple[str, str, float, float]] = field(default_factory=list)

    def add(self, student: str, submission: GradedSubmission, handed_in: datetime | None) -> None:
        """Add what one student has of one file.

        Args:
            student: Whose it is.
            submission: What grading found.
            handed_in: When it came, None where nobody says.
        """
        attempt = self.session.scalar(
            select(Attempt).where(
                Attempt.lesson == submission.lesson,
                Attempt.student == student,
                Attempt.submission_sha256 == submission.submission_sha256,
            )
        )
        if attempt is None:
            attempt = _new_attempt(student, submission, handed_in, self.about)
            self.session.add(attempt)
            self.new += 1
            self.unknown += [(student, submission.name)] if attempt.when is None else []
            wanted: Collection[str] = ()
        else:
            self._correct_time(attempt, student, handed_in)
            wanted = self.about.exercises
        seen, num_changes = bool(attempt.marks), len(self.changes)
        self._add_marks(attempt, student, submission, wanted)
        report = report_of(self.about.folder, submission, self.about.now) if self.about.folder else None
        if report and (not attempt.reports or attempt.reports[-1].findings != report.findings):
            attempt.reports.append(report)
        self.unchanged += seen and len(self.changes) == num_changes

    def done(self, nobodys: Sequence[str], zone: tzinfo) -> Recorded:
        """Return what was added.

        Args:
            nobodys: Files that belong to nobody.
            zone: The class's, for times in words.

        Raises:
            ConfigError: If marks or times would change and no reason was given.
        """
        if self.changes and not self.about.reason:
            whom, exercise, old_points, points = self.changes[0]
            raise ConfigError(
                f"{len(self.changes)} marks differ from those recorded (first: {whom}, {exercise}: {old_points:g} "
                f"before, {points:g} now), so nothing was recorded; to regrade, give --reason"
            )
        if self.moved and not self.about.reason:
            whom, before_at, at = self.moved[0]
            raise ConfigError(
                f"{len(self.moved)} files have a different hand-in time than the one recorded (first: {whom}, "
                f"{shown(before_at, zone)} "
                f"before, {shown(at, zone)} now), so nothing was recorded; to correct them, give --reason"
            )
        students = tuple(dict.fromkeys(student for student, _ in self.unknown))
        untimed = len({name for _, name in self.unknown})
        return Recorded(self.new, tuple(self.changes), self.unchanged, self.times, students, tuple(nobodys), untimed)

    def _correct_time(self, attempt: Attempt, student: str, at: datetime | None) -> None:
        """Note another time than the one known, of a file seen before."""
        before_at = attempt.when
        if at is not None and at != before_at:
            about = self.about
            attempt.times.append(
                HandedIn(handed_in_at=at, source=about.source, reason=about.reason, recorded_at=about.now)
            )
            self.times += 1
            self.moved += [(student, before_at, at)] if before_at else []

    def _add_marks(self, attempt: Attempt, student: str, submission: GradedSubmission, wanted: Collection[str]) -> None:
        """Add the marks that are new or changed, of the exercises that are wanted; () for all."""
        before = {mark.exercise: mark for mark in attempt.marks}
        for each in submission.exercises:
            old = before.get(each.id)
            same = old is not None and (old.points, old.state) == (each.points, each.state)
            if (wanted and each.id not in wanted) or same or (old is not None and old.state == "read"):
                continue  # what a person has read, grading has nothing to say of
            if old is not None:
                self.changes.append((student, each.id, old.points, each.points))
            attempt.marks.append(
                Mark(
                    exercise=each.id, points=each.points, max_points=each.max_points, state=each.state,
                    course_sha256=submission.course_sha256, reason=self.about.reason if old is not None else "",
                    recorded_at=self.about.now,
                )
            )  # fmt: skip


def _new_attempt(student: str, submission: GradedSubmission, at: datetime | None, about: About) -> Attempt:
    named, source = of_system(submission.name), about.source
    late = at is None and named is not None and named.late
    if at is None:
        source = f"hand-in time unknown; {named.system} marks it late" if named and late else "hand-in time unknown"
    time = HandedIn(handed_in_at=at, marked_late=late, source=source, reason="", recorded_at=about.now)
    return Attempt(
        lesson=submission.lesson, student=student, submission_sha256=submission.submission_sha256,
        handed_in_at=at or about.now, recorded_at=about.now, marks=[], times=[time],
    )  # fmt: skip
