"""The points a person gave, as rows of the gradebook: who, when, and for what; none is changed, undo is a row too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from labkit.errors import ConfigError
from labkit.grading.book.database import Database
from labkit.grading.book.tables import Attempt, Mark
from labkit.grading.review.questions import Answer, Question

READ, TO_READ = "read", "to_read"


@dataclass(frozen=True)
class Reading:
    """What an answer was given.

    Attributes:
        items: What of the rubric it has, by number, from 0.
        who: Who read it.
    """

    items: tuple[int, ...]
    who: str


class Readings(Database):
    """What was read, in the gradebook where the run's attempts are recorded."""

    def give(self, question: Question, answer: Answer, reading: Reading | None) -> None:
        """Write down what an answer is given; None for to be read again.

        Raises:
            ConfigError: If an attempt is not in the gradebook.
        """
        names = list(question.rubric)
        points = sum(question.rubric[names[item]] for item in reading.items) if reading else 0
        why = _words(reading, names) if reading else "to be read again"

        def add(session: Session) -> None:
            for student, digest in answer.whose:
                attempt = self._attempt(session, question.lesson, student, digest)
                before = [mark for mark in attempt.marks if mark.exercise == question.exercise]
                if not before:
                    raise ConfigError(f"{student}'s attempt has no exercise {question.exercise}; record the run again")
                attempt.marks.append(
                    Mark(
                        exercise=question.exercise, points=points, max_points=before[-1].max_points,
                        state=READ if reading else TO_READ, course_sha256=before[-1].course_sha256, reason=why,
                        recorded_at=self._now(),
                    )
                )  # fmt: skip

        self._write(add)

    def of(self, question: Question) -> dict[str, Reading]:
        """Return what answers have, by their ids."""
        names = list(question.rubric)
        found: dict[str, Reading] = {}
        with self.reading() as session:
            for answer in question.answers:
                student, digest = answer.whose[0]
                attempt = self._attempt(session, question.lesson, student, digest)
                marks = [mark for mark in attempt.marks if mark.exercise == question.exercise]
                if marks and marks[-1].state == READ:
                    found[answer.id] = _read(marks[-1].reason, names)
        return found

    @staticmethod
    def _attempt(session: Session, lesson: str, student: str, digest: str) -> Attempt:
        attempt = session.scalar(
            select(Attempt).where(
                Attempt.lesson == lesson, Attempt.student == student, Attempt.submission_sha256 == digest
            )
        )
        if attempt is None:
            raise ConfigError(
                f"{student}'s file is not in the gradebook; first run labkit gradebook record OUT with the same --book"
            )
        return attempt


def _words(reading: Reading, names: Sequence[str]) -> str:
    given = "; ".join(f"[{item + 1}] {names[item]}" for item in reading.items) or "nothing of the rubric"
    return f"read by {reading.who}: {given}"


def _read(reason: str, names: Sequence[str]) -> Reading:
    """Return what `_words` has written."""
    who, _, given = reason.removeprefix("read by ").partition(": ")
    items = tuple(item for item, name in enumerate(names) if f"[{item + 1}] {name}" in given)
    return Reading(items, who)
