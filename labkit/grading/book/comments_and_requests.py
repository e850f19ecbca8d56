"""Comments on marks, students' requests to regrade, and closed cases of copying."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from labkit.errors import ConfigError
from labkit.grading.book.database import Database
from labkit.grading.book.tables import Adjustment, Answer, Attempt, ClosedCase, Comment, FoundCase, Person, Request
from labkit.grading.plain_text import plain_text, shown

_NOBODY = "nobody yet: import a roster or record a run first"
_ASKED = re.compile(r'labkit-regrade\s+(\S+)\s+(\S+)\s+"([^"]+)"\s+([0-9a-f]{8})\b\s*[:.]?\s*(.*)', re.DOTALL)
_PLAIN = str.maketrans({"\u00a0": " ", "\u200b": None} | dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb", '"'))
_BROKEN = re.compile(r"=\r?\n|[ \t]*\r?\n(?:[ \t]*[>|])*[ \t]*")
"""How a mailer breaks a line: softly, or before another line that may be quoted."""
_LONGEST_SLUG, _LONGEST_WORDS = 100, 4000
"""Of a request, which is a student's text and is shown in terminals and pages."""


@dataclass(frozen=True)
class Asked:
    """A student's request to regrade an exercise.

    Attributes:
        id: Its number.
        lesson: Whole name.
        student: Who asks.
        exercise: About what.
        words: Why.
        asked_at: When it was recorded.
        answer: What was answered; "" while it is open.
        points: What the answer gave or took.
    """

    id: int
    lesson: str
    student: str
    exercise: str
    words: str
    asked_at: datetime
    answer: str = ""
    points: float = 0.0


def asking_text(lesson: str, exercise: str, student: str, sha256: str) -> str:
    """Return what a student pastes into a mail, in front of the reason; it says what it is about."""
    return f'labkit-regrade {lesson} {exercise} "{student}" {sha256[:8]}: '


def _unbroken(text: str) -> str:
    """Return a mail in one line, with plain quotes and spaces: mailers wrap, quote and beautify."""
    for odd, plain in (
        ("\u00a0", " "),
        ("\u200b", ""),
        *((each, '"') for each in "\u201c\u201d\u201e\u201f\u00ab\u00bb"),
    ):
        text = text.replace(odd, plain)
    return _BROKEN.sub(lambda found: "" if found[0].startswith("=") else " ", text)


def _packed(name: str) -> str:
    return "".join(name.split())


class CommentsAndRequests(Database):
    """The part of the gradebook that graders and students write to each other in."""

    def comment(self, lesson: str, student: str, exercise: str, words: str) -> None:
        """Keep what a grader writes to a student; it stands on the student's page.

        Raises:
            ConfigError: If there are no words, or nobody of that name.
        """
        if not words.strip():
            raise ConfigError("the comment is empty; write what the student should read")

        def add(session: Session) -> None:
            self._must_know(session, student)
            row = Comment(
                lesson=lesson, student=student, exercise=exercise, words=words, recorded_at=self._now()
            )  # fmt: skip
            session.add(row)

        self._write(add)

    def comments(self, lesson: str, student: str) -> list[tuple[str, str]]:
        """Return exercise ("" for all of it) and words of each comment to a student, oldest first."""
        with self.reading() as session:
            rows = session.scalars(
                select(Comment).where(Comment.lesson == lesson, Comment.student == student).order_by(Comment.id)
            )
            return [(row.exercise, row.words) for row in rows]

    def ask(self, text: str) -> Asked:
        """Record a student's request to look again.

        Args:
            text: What the student pasted from the page, with the reason after it.

        Raises:
            ConfigError: If that is not in it, there is no reason, or it is about a file that nobody handed in.
        """
        found = _ASKED.search(_unbroken(text))
        if found is None:
            raise ConfigError(
                'there is no request in this; one begins with labkit-regrade LESSON EXERCISE "NAME" HASH, as on the '
                "page"
            )
        lesson, exercise, student, sha256, words = found.groups()
        if not words.strip():
            raise ConfigError(f"{student} gives no reason after the request; ask for one")

        def add(session: Session) -> Request:
            attempts = session.execute(
                select(Attempt.student, Attempt.submission_sha256).where(Attempt.lesson == lesson)
            ).all()
            names = {name for name, each in attempts if each.startswith(sha256) and _packed(name) == _packed(student)}
            if len(names) != 1:
                raise ConfigError(f"{student} has no file {sha256} at {lesson}; the request was not copied whole")
            row = Request(
                lesson=lesson, student=names.pop(), exercise=shown(exercise)[:_LONGEST_SLUG],
                words=plain_text(words.strip(), _LONGEST_WORDS), recorded_at=self._now(),
            )  # fmt: skip
            session.add(row)
            session.flush()
            session.expunge(row)
            return row

        row = self._write(add)
        return Asked(row.id, lesson, row.student, row.exercise, row.words, row.recorded_at)

    def requests(self, lesson: str = "") -> list[Asked]:
        """Return all requests, of one lesson or all, oldest first."""
        with self.reading() as session:
            wanted = select(Request).order_by(Request.id)
            rows = session.scalars(wanted.where(Request.lesson == lesson) if lesson else wanted)
            return [
                Asked(
                    row.id, row.lesson, row.student, row.exercise, row.words, row.recorded_at,
                    row.answers[-1].words if row.answers else "", sum(each.points for each in row.answers),
                )
                for row in rows
            ]  # fmt: skip

    def answer(self, request: int, words: str, points: float = 0.0) -> Asked:
        """Answer a request; points go into the mark as an adjustment whose reason is the answer.

        Raises:
            ConfigError: If there are no words or no such request.
        """
        if not words.strip():
            raise ConfigError(f"the answer to request {request} is empty; write what the student should read")

        def add(session: Session) -> None:
            row = session.get(Request, request)
            if row is None:
                raise ConfigError(f"there is no request {request}; labkit gradebook requests lists them")
            now = self._now()
            session.add(Answer(request_id=request, words=words, points=points, recorded_at=now))
            if points:
                reason = f"asked to look again at {row.exercise}: {words}"
                session.add(
                    Adjustment(lesson=row.lesson, student=row.student, points=points, reason=reason, recorded_at=now)
                )

        self._write(add)
        return next(each for each in self.requests() if each.id == request)

    def keep_cases(self, found: Mapping[str, str]) -> None:
        """Remember the cases of copying that were listed: by id, whose files are alike. Only these can be closed."""

        def add(session: Session) -> None:
            for case, names in found.items():
                session.merge(FoundCase(case=case, names=names, recorded_at=self._now()))

        self._write(add)

    def close_case(self, case: str, note: str) -> str:
        """Close a case of copying with a note; return whose files are alike.

        Raises:
            ConfigError: If there is no note, or no such case was listed.
        """
        if not note.strip():
            raise ConfigError(f"closing case {case} needs a note for whoever reads the page later")

        def add(session: Session) -> None:
            if session.get(FoundCase, case) is None:
                newest = list(session.scalars(select(FoundCase).order_by(FoundCase.recorded_at.desc(), FoundCase.case)))
                listed = "; ".join(f"{each.case} ({each.names})" for each in newest[:5])
                there = f"it knows {listed}{'; ...' if len(newest) > 5 else ''}" if newest else "it knows none"
                raise ConfigError(
                    f"there is no case {case} in this gradebook; {there}. labkit copies SUBMISSIONS --lesson 02 --out "
                    "copies.html, with this gradebook as --book, lists a class's cases"
                )
            session.add(ClosedCase(case=case, note=note, recorded_at=self._now()))

        self._write(add)
        with self.reading() as session:
            return session.get_one(FoundCase, case).names

    def closed_cases(self) -> dict[str, str]:
        """Return the newest note of each closed case, by its id."""
        with self.reading() as session:
            rows = session.scalars(select(ClosedCase).order_by(ClosedCase.id))
            return {row.case: row.note for row in rows}

    @staticmethod
    def _must_know(session: Session, student: str) -> None:
        """Return if somebody of this name is in the roster, or handed in something."""
        known = {*session.scalars(select(Person.name)), *session.scalars(select(Attempt.student).distinct())}
        if student not in known:
            listed = sorted(known)
            close = difflib.get_close_matches(student, listed, 5) or listed[:5]
            more = ", ..." if len(listed) > len(close) else ""
            raise ConfigError(f"there is no {student!r} in this gradebook; it has {', '.join(close) + more or _NOBODY}")
