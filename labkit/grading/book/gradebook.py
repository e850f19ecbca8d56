"""The gradebook: records what grading found and says what each student has; nothing in it is overwritten."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from sqlalchemy import Engine, create_engine, event, func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session, selectinload

from labkit.errors import ConfigError, EnvironmentProblem
from labkit.grading.book.lateness import Lateness
from labkit.grading.book.standing import Grade, deadlines, standing
from labkit.grading.book.tables import VERSION, About, Adjustment, Attempt, Deadline, Mark, Table
from labkit.grading.reports.results import GradedSubmission

KEEP = ("best", "latest")
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Recorded:
    """What recording a grading run brought.

    Attributes:
        new_attempts: Files seen for the first time.
        regraded: Marks that changed for files seen before, as (student, exercise, points before, points now).
        unchanged: Files whose marks are as they were.
    """

    new_attempts: int
    regraded: tuple[tuple[str, str, float, float], ...]
    unchanged: int


class Gradebook:
    """A gradebook in a database: SQLite by default, PostgreSQL by URL."""

    def __init__(self, url: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Open the gradebook, and make its tables if there are none.

        Args:
            url: SQLAlchemy's, ``sqlite:///grades/book.db`` or ``postgresql+psycopg://user@host/name``.
            now: The clock.

        Raises:
            ConfigError: If the URL cannot be read, or a newer labkit made the tables.
            EnvironmentProblem: If the database does not answer.
        """
        self._now = now
        try:
            parsed = make_url(url)
            self._shown = parsed.render_as_string(hide_password=True)
            self._engine = _engine(url)
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            raise ConfigError(
                f"{url!r} is no database that can be opened ({error}); write sqlite:///grades/book.db or "
                "postgresql+psycopg://user@host/name (the latter needs: pip install 'labkit[postgresql]')"
            ) from None
        with ExitStack() as undo:
            undo.callback(self.close)
            with self._reached():
                Table.metadata.create_all(self._engine)
                with Session(self._engine) as session, session.begin():
                    version = session.scalar(select(func.max(About.version)))
                    if version is None:
                        session.add(About(version=VERSION))
            if version is not None and version > VERSION:
                raise ConfigError(
                    f"{self._shown} was made by a newer labkit (layout {version}, here {VERSION}); upgrade labkit"
                )
            undo.pop_all()  # it stays open

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def record(
        self,
        submissions: Iterable[GradedSubmission],
        *,
        handed_in: Mapping[str, datetime] | None = None,
        exercises: Collection[str] = (),
        reason: str = "",
    ) -> Recorded:
        """Add what grading found, all of it or nothing; recording the same twice adds nothing.

        Args:
            submissions: Of a grading run.
            handed_in: When each student handed in; who is not named handed in now.
            exercises: Regrade only these, by slug or number: other exercises keep their marks. Of files not seen
                before, all are recorded.
            reason: Why marks of files seen before may change.

        Raises:
            ConfigError: If an exercise is unknown, or marks would change without a reason.
            EnvironmentProblem: If the database fails; it is then as it was.
        """
        listed = list(submissions)
        known = {each.id for submission in listed for each in submission.exercises}
        numbers = {each.number: each.id for submission in listed for each in submission.exercises}
        exercises = {numbers.get(each, each) for each in exercises}
        if unknown := set(exercises) - known:
            raise ConfigError(
                f"no exercise {', '.join(sorted(unknown))} in these results; there are {', '.join(sorted(known))}"
            )

        def add(session: Session) -> Recorded:
            new, unchanged = 0, 0
            changes: list[tuple[str, str, float, float]] = []
            for submission in listed:
                attempt = session.scalar(
                    select(Attempt).where(
                        Attempt.lesson == submission.lesson,
                        Attempt.student == submission.name,
                        Attempt.submission_sha256 == submission.submission_sha256,
                    )
                )
                if attempt is None:
                    attempt = self._new_attempt(submission, handed_in or {})
                    session.add(attempt)
                    wanted = known
                    new += 1
                else:
                    wanted = set(exercises) or known
                before = {mark.exercise: mark for mark in attempt.marks}
                num_changes = len(changes)
                for each in submission.exercises:
                    old = before.get(each.id)
                    if each.id not in wanted or (
                        old is not None and (old.points, old.state) == (each.points, each.state)
                    ):
                        continue
                    if old is not None:
                        changes.append((submission.name, each.id, old.points, each.points))
                    attempt.marks.append(
                        Mark(
                            exercise=each.id, points=each.points, max_points=each.max_points, state=each.state,
                            course_sha256=submission.course_sha256, reason=reason if old is not None else "",
                            recorded_at=self._now(),
                        )
                    )  # fmt: skip
                unchanged += bool(before) and len(changes) == num_changes
            if changes and not reason:
                student, exercise, old_points, points = changes[0]
                raise ConfigError(
                    f"{len(changes)} marks differ from those recorded (first: {student}, {exercise}: {old_points:g} "
                    f"before, {points:g} now); give --reason to regrade, nothing was recorded"
                )
            return Recorded(new, tuple(changes), unchanged)

        return self._write(add)

    def adjust(self, lesson: str, student: str, points: float, reason: str) -> None:
        """Give a student points by hand, or take some (negative).

        Raises:
            ConfigError: If there is no reason or no attempt of that student.
        """
        if not reason.strip():
            raise ConfigError(f"an adjustment of {points:+g} points needs a reason; the student may ask for it")

        def add(session: Session) -> None:
            self._must_know(session, lesson, student)
            session.add(
                Adjustment(lesson=lesson, student=student, points=points, reason=reason, recorded_at=self._now())
            )

        self._write(add)

    def set_deadline(self, lesson: str, lateness: Lateness, student: str = "") -> None:
        """Set when a lesson is due and what lateness costs, for all or (an extension) for one student."""
        self._write(
            lambda session: session.add(
                Deadline(
                    lesson=lesson, student=student, due_at=lateness.due_at,
                    grace_minutes=lateness.grace / timedelta(minutes=1), percent_per_day=lateness.percent_per_day,
                    percent_at_most=lateness.percent_at_most, recorded_at=self._now(),
                )
            )
        )  # fmt: skip

    def lessons(self) -> list[str]:
        """Return the lessons that have attempts."""
        with self._reached(), Session(self._engine) as session:
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
            raise ConfigError(f"keep {keep!r} is not there; use {' or '.join(KEEP)}")
        with self._reached(), Session(self._engine) as session:
            attempts = session.scalars(
                select(Attempt)
                .where(Attempt.lesson == lesson)
                .options(selectinload(Attempt.marks))
                .order_by(Attempt.id)
            ).all()
            if not attempts:
                known = session.scalars(select(Attempt.lesson).distinct().order_by(Attempt.lesson)).all()
                raise ConfigError(
                    f"nothing is recorded for lesson {lesson!r}; there is {', '.join(known) or 'nothing yet'}"
                )
            lateness = deadlines(
                session.scalars(select(Deadline).where(Deadline.lesson == lesson).order_by(Deadline.id))
            )
            adjusted: dict[str, float] = defaultdict(float)
            for each in session.scalars(select(Adjustment).where(Adjustment.lesson == lesson)):
                adjusted[each.student] += each.points
            by_student: dict[str, list[Attempt]] = defaultdict(list)
            for attempt in attempts:
                by_student[attempt.student].append(attempt)
            return [
                standing(student, by_student[student], lateness.get(student, lateness.get("")), adjusted[student], keep)
                for student in sorted(by_student)
            ]

    def history(self, lesson: str, student: str) -> list[tuple[datetime, str]]:
        """Return all that is known of a student's lesson, oldest first, as (when it was recorded, words)."""
        with self._reached(), Session(self._engine) as session:
            self._must_know(session, lesson, student)
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
                words = f"attempt {number}, handed in {attempt.handed_in_at:%Y-%m-%d %H:%M} UTC: {earned:g} points"
                found.append((attempt.recorded_at, words))
            for each in session.scalars(
                select(Adjustment).where(Adjustment.lesson == lesson, Adjustment.student == student)
            ):
                found.append((each.recorded_at, f"adjusted by {each.points:+g} points ({each.reason})"))
            for due in session.scalars(
                select(Deadline).where(Deadline.lesson == lesson, Deadline.student.in_(("", student)))
            ):
                whom = "for this student" if due.student else "for all"
                found.append(
                    (due.recorded_at, f"due {due.due_at:%Y-%m-%d %H:%M} UTC {whom}, {due.percent_per_day:g} % a day")
                )
            return sorted(found, key=lambda each: each[0])

    # ---- the database

    def _new_attempt(self, submission: GradedSubmission, handed_in: Mapping[str, datetime]) -> Attempt:
        now = self._now()
        return Attempt(
            lesson=submission.lesson, student=submission.name, submission_sha256=submission.submission_sha256,
            handed_in_at=handed_in.get(submission.name, now), recorded_at=now, marks=[],
        )  # fmt: skip

    @staticmethod
    def _must_know(session: Session, lesson: str, student: str) -> None:
        known = session.scalars(select(Attempt.student).where(Attempt.lesson == lesson).distinct()).all()
        if student not in known:
            near = ", ".join(sorted(known)[:5]) or "nobody yet"
            raise ConfigError(
                f"{student!r} has no attempt at {lesson!r}; there are {near}{', ...' if len(known) > 5 else ''}"
            )

    def _write(self, add: Callable[[Session], _Value]) -> _Value:
        """Return what `add` returns, its rows written together; once more if another grader wrote the same first."""
        with self._reached():
            for last in (False, True):
                try:
                    with Session(self._engine) as session, session.begin():
                        return add(session)
                except IntegrityError:
                    if last:
                        raise
            raise AssertionError("unreachable")

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except OperationalError as error:
            raise EnvironmentProblem(
                f"the gradebook {self._shown} does not answer ({str(error.orig).strip()}); it is as it was before. "
                "See that the server runs, or that the folder is there and has room"
            ) from None
        except SQLAlchemyError as error:
            raise EnvironmentProblem(f"the gradebook {self._shown} failed and is as it was before: {error}") from None


def _engine(url: str) -> Engine:
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def _safe(connection: object, record: object) -> None:
            cursor = connection.cursor()  # type: ignore[attr-defined]
            cursor.execute("PRAGMA foreign_keys=ON")
            cursor.execute("PRAGMA busy_timeout=30000")  # milliseconds that a second grader waits for the first
            cursor.close()

    return engine
