"""The gradebook: records what grading found and says what each student has; nothing in it is overwritten."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from labkit.errors import ConfigError
from labkit.grading.book.class_time import shown, zone_named
from labkit.grading.book.headings import full_marks
from labkit.grading.book.lateness import Lateness
from labkit.grading.book.recording import About, Recorded, Recording
from labkit.grading.book.roster import Roster, attempt_order
from labkit.grading.book.standing import Grade, deadlines, standing
from labkit.grading.book.tables import Adjustment, Attempt, Deadline, HandedIn, Mark, Setting
from labkit.grading.reports.results import GradedSubmission

KEEP = ("best", "latest")


class Gradebook(Roster):
    """What grading found, what was given by hand, and what each student has."""

    def record(
        self,
        submissions: Iterable[GradedSubmission],
        *,
        handed_in: Mapping[str, datetime] | None = None,
        source: str = "",
        exercises: Collection[str] = (),
        reason: str = "",
        folder: Path | None = None,
    ) -> Recorded:
        """Add what grading found, all of it or nothing; recording the same twice adds nothing.

        Args:
            submissions: Of a grading run.
            handed_in: When each student handed in; without a time nothing is deducted.
            source: What says so.
            exercises: Regrade only these, by slug or number: other exercises keep their marks. Of files not seen
                before, all are recorded.
            reason: Why marks of files seen before may change.
            folder: Where the run left its reports, which are kept with each attempt.

        Raises:
            ConfigError: If an exercise is unknown, or marks or times would change without a reason.
            EnvironmentProblem: If the database fails; it is then as it was.
        """
        listed = sorted(submissions, key=lambda each: attempt_order(each.name))
        whose = self.whose(each.name for each in listed)
        shared = self.shared_by(each.name for each in listed)
        turns = [(student, each) for each in listed for student in shared.get(each.name, ())]
        known = {each.id for submission in listed for each in submission.exercises}
        numbers = {each.number: each.id for submission in listed for each in submission.exercises}
        exercises = {numbers.get(each, each) for each in exercises}
        if unknown := set(exercises) - known:
            raise ConfigError(
                f"these results have no exercise {', '.join(sorted(unknown))}; they have {', '.join(sorted(known))}"
            )

        def add(session: Session) -> Recorded:
            run = Recording(session, About(source, reason, exercises, folder, self._now()))
            for student, submission in turns:
                run.add(student, submission, (handed_in or {}).get(submission.name))
            return run.done((*whose.unknown, *whose.unclear), self._zone(session))

        return self._write(add)

    def adjust(self, lesson: str, student: str, points: float, reason: str) -> None:
        """Give a student points by hand, or take some (negative).

        Raises:
            ConfigError: If there is no reason or nobody of that name.
        """
        if not reason.strip():
            raise ConfigError(f"an adjustment of {points:+g} points needs a reason; the student may ask for it")

        def add(session: Session) -> None:
            self._must_know(session, student)
            session.add(
                Adjustment(lesson=lesson, student=student, points=points, reason=reason, recorded_at=self._now())
            )

        self._write(add)

    def correct_time(
        self, lesson: str, student: str, at: datetime | None, reason: str, attempt: int | None = None
    ) -> datetime | None:
        """Say when a file was handed in, and return what was held before.

        Args:
            lesson: As graded, "02_ring_all_reduce".
            student: Name.
            at: With its zone; None for unknown.
            reason: Kept beside it.
            attempt: Which file, counted from 1; by default the last one.

        Raises:
            ConfigError: If there is no reason, no such student or no such attempt.
        """
        if not reason.strip():
            raise ConfigError(f"changing the time of {student} needs a reason; it is kept beside the time")

        def add(session: Session) -> datetime | None:
            self._must_know(session, student)
            mine = session.scalars(
                select(Attempt).where(Attempt.lesson == lesson, Attempt.student == student).order_by(Attempt.id)
            ).all()
            number = attempt if attempt is not None else len(mine)
            if not 1 <= number <= len(mine):
                raise ConfigError(f"{student} has {len(mine)} attempts at {lesson}, and no attempt {number}")
            before = mine[number - 1].when
            mine[number - 1].times.append(
                HandedIn(handed_in_at=at, source="by hand", reason=reason, recorded_at=self._now())
            )
            return before

        return self._write(add)

    @property
    def zone(self) -> tzinfo:
        """The class's time zone; UTC until one is set."""
        with self.reading() as session:
            return self._zone(session)

    def set_zone(self, name: str) -> None:
        """Set the class's time zone, "Europe/Berlin".

        Raises:
            ConfigError: If there is none of that name.
        """
        zone_named(name)
        self._write(lambda session: session.add(Setting(name="zone", value=name, recorded_at=self._now())))

    def adjustments(self, lesson: str, student: str) -> list[tuple[float, str, datetime]]:
        """Return points, reason and time of what was given or taken by hand, oldest first."""
        with self.reading() as session:
            rows = session.scalars(
                select(Adjustment)
                .where(Adjustment.lesson == lesson, Adjustment.student == student)
                .order_by(Adjustment.id)
            )
            return [(row.points, row.reason, row.recorded_at) for row in rows]

    def set_deadline(self, lesson: str, lateness: Lateness, student: str = "") -> None:
        """Set when a lesson is due and what lateness costs, for all or (an extension) for one student.

        Raises:
            ConfigError: If there is nobody of that name.
        """

        def add(session: Session) -> None:
            if student:
                self._must_know(session, student)
            session.add(
                Deadline(
                    lesson=lesson, student=student, due_at=lateness.due_at,
                    grace_minutes=lateness.grace / timedelta(minutes=1), percent_per_day=lateness.percent_per_day,
                    percent_at_most=lateness.percent_at_most, recorded_at=self._now(),
                )
            )  # fmt: skip

        self._write(add)

    def lessons(self) -> list[str]:
        """Return the lessons that have attempts."""
        with self.reading() as session:
            return list(session.scalars(select(Attempt.lesson).distinct().order_by(Attempt.lesson)))

    def grades(self, lesson: str, keep: str = "best") -> list[Grade]:
        """Return what every student has, by name.

        Args:
            lesson: As graded, "02_ring_all_reduce".
            keep: Which attempt counts: "best" (after lateness) or "latest".

        Raises:
            ConfigError: If keep is neither, or nothing is recorded for the lesson.
        """
        if keep not in KEEP:
            raise ConfigError(f"keep={keep!r} is not known; use {' or '.join(KEEP)}")
        with self.reading() as session:
            attempts = session.scalars(
                select(Attempt)
                .where(Attempt.lesson == lesson)
                .options(selectinload(Attempt.marks), selectinload(Attempt.times))
                .order_by(Attempt.id)
            ).all()
            people = self._people(session)
            adjusted: dict[str, float] = defaultdict(float)
            for each in session.scalars(select(Adjustment).where(Adjustment.lesson == lesson)):
                adjusted[each.student] += each.points
            if not attempts and not adjusted:
                known = session.scalars(select(Attempt.lesson).distinct().order_by(Attempt.lesson)).all()
                there = ", ".join(known) or "no lesson yet: `labkit gradebook record` adds what `labkit grade` found"
                raise ConfigError(f"nothing is recorded for lesson {lesson!r}; the gradebook has {there}")
            lateness = deadlines(
                session.scalars(select(Deadline).where(Deadline.lesson == lesson).order_by(Deadline.id))
            )
            by_student: dict[str, list[Attempt]] = defaultdict(list)
            for attempt in attempts:
                by_student[attempt.student].append(attempt)
            grades = {}
            for student in by_student:
                due = lateness.get(student, lateness.get(""))
                extra = people[student].extra if student in people and student not in lateness else None
                due = due.later(extra) if due and extra else due
                grades[student] = standing(student, by_student[student], due, adjusted[student], keep)
            full = max((grade.max_score for grade in grades.values()), default=0.0) or full_marks(lesson)
            for student in {*people, *adjusted} - set(grades):
                points = round(adjusted[student], 6)
                grades[student] = Grade(student, points, full, adjusted=points)
            return [grades[student] for student in sorted(grades)]

    def history(self, lesson: str, student: str) -> list[tuple[datetime, str]]:
        """Return all that is known of a student's lesson, oldest first, as (when it was recorded, words)."""
        with self.reading() as session:
            self._must_know(session, student)
            zone = self._zone(session)
            found: list[tuple[datetime, str]] = []
            mine = select(Attempt).where(Attempt.lesson == lesson, Attempt.student == student).order_by(Attempt.id)
            for number, attempt in enumerate(session.scalars(mine), start=1):
                first: dict[str, Mark] = {}
                for mark in attempt.marks:
                    if (old := first.get(mark.exercise)) is None:
                        first[mark.exercise] = mark
                        continue
                    words = f"{mark.exercise} regraded in attempt {number}: {old.points:g} to {mark.points:g}"
                    found.append((mark.recorded_at, f"{words} points ({mark.reason})"))
                    first[mark.exercise] = mark
                earned = sum({mark.exercise: mark.points for mark in reversed(attempt.marks)}.values())
                told = attempt.times[0].handed_in_at if attempt.times else attempt.when
                words = f"attempt {number}, handed in {_when(told, zone)}: {earned:g} points"
                found.append((attempt.recorded_at, words))
                for time in attempt.times[1:]:
                    why = "; ".join(each for each in (time.source, time.reason) if each)
                    words = f"attempt {number} was handed in {_when(time.handed_in_at, zone)} ({why})"
                    found.append((time.recorded_at, words))
            for each in session.scalars(
                select(Adjustment).where(Adjustment.lesson == lesson, Adjustment.student == student)
            ):
                found.append((each.recorded_at, f"adjusted by {each.points:+g} points ({each.reason})"))
            for due in session.scalars(
                select(Deadline).where(Deadline.lesson == lesson, Deadline.student.in_(("", student)))
            ):
                whom = "for this student" if due.student else "for all"
                found.append(
                    (due.recorded_at, f"due {shown(due.due_at, zone)} {whom}, {due.percent_per_day:g} % a day")
                )
            return sorted(found, key=lambda each: each[0])

    # ---- the database

    @staticmethod
    def _zone(session: Session) -> tzinfo:
        name = session.scalar(select(Setting.value).where(Setting.name == "zone").order_by(Setting.id.desc()).limit(1))
        return zone_named(name) if name else UTC


def _when(moment: datetime | None, zone: tzinfo) -> str:
    return shown(moment, zone) if moment else "at an unknown time"
