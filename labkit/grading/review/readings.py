"""The points a person gave, as rows of the gradebook: who, when, and for what; none is changed, undo is a row too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from labkit.errors import ConfigError
from labkit.grading.book.database import Database
from labkit.grading.book.tables import Attempt, Mark, RubricItem
from labkit.grading.review.questions import Answer, Question

READ, TO_READ = "read", "to_read"


@dataclass(frozen=True)
class Reading:
    """What an answer was given.

    Attributes:
        items: What of the rubric it has, by number, from 0.
        who: Who read it.
        comment: What the reader writes to whoever wrote it, or "".
    """

    items: tuple[int, ...]
    who: str
    comment: str = ""


class Readings(Database):
    """What was read, in the gradebook where the run's attempts are recorded."""

    def give(self, question: Question, answer: Answer, reading: Reading | None) -> None:
        """Write down what an answer is given; None for to be read again.

        Raises:
            ConfigError: If an attempt is not in the gradebook.
        """
        points = question.points(reading.items) if reading else 0
        why = _words(reading, list(question.rubric)) if reading else "to be read again"

        def add(session: Session) -> None:
            for attempt in self._attempts(session, question.lesson, answer):
                before = [mark for mark in attempt.marks if mark.exercise == question.exercise]
                if not before:
                    raise ConfigError(
                        f"{attempt.student}'s attempt has no exercise {question.exercise}; record the run again"
                    )
                attempt.marks.append(
                    Mark(
                        exercise=question.exercise, points=points, max_points=before[-1].max_points,
                        state=READ if reading else TO_READ, course_sha256=before[-1].course_sha256, reason=why,
                        recorded_at=self._now(),
                    )
                )  # fmt: skip

        self._write(add)

    def of(self, question: Question) -> dict[str, Reading]:
        """Return what answers have, by their ids; an answer that not all who wrote it have points for is to be read."""
        names = list(question.rubric)
        found: dict[str, Reading] = {}
        with self.reading() as session:
            for answer in question.answers:
                newest = [
                    next((mark for mark in reversed(attempt.marks) if mark.exercise == question.exercise), None)
                    for attempt in self._attempts(session, question.lesson, answer)
                ]
                reasons = {mark.reason if mark and mark.state == READ else "" for mark in newest}
                if len(reasons) == 1 and (reason := reasons.pop()):
                    found[answer.id] = _read(reason, names)
        return found

    def add_item(self, question: Question, words: str, points: int, who: str) -> Question:
        """Return the question with one more item in its rubric, for all who read it from now on."""
        row = RubricItem(
            lesson=question.lesson, exercise=question.exercise, words=words, points=points, who=who,
            recorded_at=self._now(),
        )  # fmt: skip
        self._write(lambda session: session.add(row))
        return self.with_items(question)

    def with_items(self, question: Question) -> Question:
        """Return the question with what readers have added to its rubric."""
        with self.reading() as session:
            rows = session.scalars(
                select(RubricItem)
                .where(RubricItem.lesson == question.lesson, RubricItem.exercise == question.exercise)
                .order_by(RubricItem.id)
            )
            return replace(question, rubric={**question.rubric, **{row.words: row.points for row in rows}})

    @staticmethod
    def _attempts(session: Session, lesson: str, answer: Answer) -> list[Attempt]:
        """Return all attempts with these files, whoever the roster says they are of."""
        found: list[Attempt] = []
        for name, digest in {digest: (name, digest) for name, digest in answer.whose}.values():
            mine = session.scalars(
                select(Attempt).where(Attempt.lesson == lesson, Attempt.submission_sha256 == digest)
            ).all()
            if not mine:
                raise ConfigError(
                    f"{name}'s file is not in the gradebook; first run labkit gradebook record OUT with the same --book"
                )
            found += mine
        return found


def _words(reading: Reading, names: Sequence[str]) -> str:
    """Return a reading in words: a line for what it gives, and below it the comment."""
    given = "; ".join(f"[{item + 1}] {names[item]}" for item in reading.items) or "nothing of the rubric"
    return "\n".join(each for each in (f"read by {reading.who}: {given}", reading.comment) if each)


def _read(reason: str, names: Sequence[str]) -> Reading:
    """Return what `_words` has written."""
    line, _, comment = reason.partition("\n")
    who, _, given = line.removeprefix("read by ").partition(": ")
    items = tuple(item for item, name in enumerate(names) if f"[{item + 1}] {name}" in given)
    return Reading(items, who, comment)
