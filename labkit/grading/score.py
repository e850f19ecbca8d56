"""Points: all or nothing for each exercise, on hidden cases, unless its cases are weighted; order never matters."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from labkit.lessons.manifest import Exercise

if TYPE_CHECKING:
    from labkit.grading.guesses import Guess

State = Literal["passed", "failed", "not_done", "not_graded", "to_read"]
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


@dataclass(frozen=True)
class CaseResult:
    """What one hidden case said of one exercise, in words a student may read.

    Attributes:
        name: The case.
        passed: Whether it is right in every respect.
        message: What came back.
        hint: Where to look.
        kind: What kind of failure it was, or "" for a wrong result.
        mistake: The name of the recognised mistake, or "".
        picture: What its ranks sent and waited for, as safe HTML; "" where nothing is to be seen.
        line: The line of the answer's cell, from 1, whose call it is about; 0 for none.
    """

    name: str
    passed: bool
    message: str = ""
    hint: str = ""
    kind: str = ""
    mistake: str = ""
    picture: str = ""
    line: int = 0


@dataclass(frozen=True)
class ExerciseResult:
    """What an exercise earned.

    Attributes:
        exercise: What was asked, and its points.
        state: ``passed``, ``failed``, ``not_done`` (as it was handed out), ``not_graded`` (nothing could be read)
            or ``to_read`` (a person has to: sentences).
        cases: The cases that were tried, in order.
        num_cases: How many there are.
        written: The sentences of a ``write``, as they were handed in; "" of any other.
        with_references: Names of exercises it stands on and whose reference answers it passed with; () for its own.
        pack: "answer" if the cell is that of a pack that was handed out, "unnamed" if its first line says so and no
            such pack was named; else "".
        pack_earns: Percent of its points that it earns if it passes.
        lost: Where its answer is, in words, if its cell was not found as it must be; else "".
    """

    exercise: Exercise
    state: State
    cases: tuple[CaseResult, ...] = ()
    num_cases: int = 0
    written: str = ""
    with_references: tuple[str, ...] = ()
    pack: str = ""
    pack_earns: int = 100
    lost: str = ""

    @property
    def score(self) -> float:
        """All its points, or none; of weighted cases those that pass, of a pack's answer what the pack says."""
        return round(self.exercise.points * self._share * self.pack_earns / 100, 2)

    @property
    def _share(self) -> float:
        if self.state == "passed":
            return 1.0
        weights = self.exercise.weights
        if self.state != "failed" or not weights:
            return 0.0
        return sum(weight for weight, case in zip(weights, self.cases, strict=False) if case.passed) / sum(weights)

    @property
    def first_failure(self) -> CaseResult | None:
        """The first case that did not pass."""
        return next((case for case in self.cases if not case.passed), None)

    @property
    def mistake(self) -> str:
        """The name of the first mistake that was recognised, or ""."""
        return next((case.mistake for case in self.cases if case.mistake), "")


@dataclass(frozen=True)
class StudentResult:
    """Everything said of one submission.

    Attributes:
        name: The submission's name.
        problem: Why nothing could be graded, or "".
        exercises: One result for each exercise of the lesson.
        notes: What was left out or mended.
        notebook_summary: What became of the executed notebook.
        cell_notes: Cells of it that did not end well: id and what happened.
        predictions: What was predicted, beside what came out.
        submission_hash: Hash of what was handed in.
        course_hash: Hash of everything else the score depends on.
        sources: What was handed in for each exercise, by its id.
        seconds: How long it took.
    """

    name: str
    problem: str
    exercises: tuple[ExerciseResult, ...]
    notes: tuple[str, ...] = ()
    notebook_summary: str = ""
    cell_notes: tuple[tuple[str, str], ...] = ()
    predictions: tuple[Guess, ...] = ()
    submission_hash: str = ""
    course_hash: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)

    @property
    def lost(self) -> str:
        """Which answers were handed in so that they cannot be graded, and where they are, in words; or ""."""
        where: dict[str, list[str]] = {}
        for each in self.exercises:
            if each.lost:
                where.setdefault(each.lost, []).append(each.exercise.number or each.exercise.id)
        return "; ".join(f"{', '.join(numbers)}: {words}" for words, numbers in where.items())

    @property
    def score(self) -> float:
        """Points earned, bonus included."""
        return sum(result.score for result in self.exercises)

    @property
    def max_score(self) -> float:
        """Full marks: points of the exercises that are no bonus."""
        return float(sum(result.exercise.points for result in self.exercises if not result.exercise.bonus))


def submission_secret(answers: Sequence[tuple[str, str]], key: bytes) -> int:
    """Return what a submission's hidden cases follow from: the same answers always get the same cases.

    Args:
        answers: Id and source of each exercise cell.
        key: The class key.
    """
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for cell_id, source in answers:
        for text in (cell_id, source):
            data = text.encode("utf-8", "replace")
            digest.update(len(data).to_bytes(8, "little") + data)  # so that no two lists of answers read the same
    return int.from_bytes(digest.digest(), "little")


def rank_seed(secret: int, exercise_id: str, case: int, rank: int) -> int:
    """Return the seed of a rank's random generators in a case, 0 <= seed < 2**62; it tells nothing of another's."""
    text = f"{exercise_id}/{case}/{rank}".encode()
    return int.from_bytes(hmac.digest(secret.to_bytes(32, "little"), text, "sha256")[:8], "little") >> 2


def steady(text: str) -> str:
    """Return `text` without what differs from run to run: memory addresses."""
    return _ADDRESS.sub("0x…", text)
