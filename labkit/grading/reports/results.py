"""What a grading run left in its folder: the one reader of result.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.errors import ConfigError


@dataclass(frozen=True)
class GradedExercise:
    """One exercise in a result.json.

    Attributes:
        id: Its slug.
        points: What it earned.
        max_points: What counts towards full marks: 0 for a bonus.
        state: "passed", "failed", "not_done", "not_graded" or "to_read".
        title: A few words that name the task.
        said: What its student is told.
        mistake: The name of the recognised mistake, or "".
        number: What people call it by, "2.7"; or "".
        written: The sentences of a ``write``, or "".
        pack: "answer" for a pack's answer, "unnamed" for one of a pack that grading was not told of, or "".
    """

    id: str
    points: float
    max_points: float
    state: str
    title: str = ""
    said: str = ""
    mistake: str = ""
    number: str = ""
    written: str = ""
    pack: str = ""

    @property
    def name(self) -> str:
        """Its number and title, as people read it: "2.7 A drop-in for dist.all_reduce"."""
        return f"{self.number or self.id} {self.title}".strip()


@dataclass(frozen=True)
class GradedSubmission:
    """One student's result.json.

    Attributes:
        name: The submission's name.
        lesson: Of the course.
        submission_sha256: Of the file handed in.
        course_sha256: Of all else the score rests on.
        exercises: In the lesson's order.
        problem: Why nothing could be graded, or "".
        graded_now: False where the result of an earlier run was kept.
        lost: Which answers could not be graded as they were handed in, in words, or "".
    """

    name: str
    lesson: str
    submission_sha256: str
    course_sha256: str
    exercises: tuple[GradedExercise, ...]
    problem: str = ""
    graded_now: bool = True
    lost: str = ""

    @property
    def score(self) -> float:
        """Points earned, bonus included."""
        return sum(each.points for each in self.exercises)

    @property
    def max_score(self) -> float:
        """Full marks, without bonus."""
        return sum(each.max_points for each in self.exercises)

    @property
    def bonus(self) -> float:
        """Points earned in exercises that do not count towards full marks."""
        return sum(each.points for each in self.exercises if not each.max_points)

    @property
    def points(self) -> dict[str, float]:
        """Points earned for each exercise, by id."""
        return {each.id: each.points for each in self.exercises}


def read_result(path: Path, graded_now: bool = True) -> GradedSubmission:
    """Return what a result.json says.

    Args:
        path: The file.
        graded_now: What is to be noted of it.

    Raises:
        ConfigError: If it cannot be read, or is not whole.
    """
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        extra = content["extra_data"]
        return GradedSubmission(
            str(extra["name"]),
            str(extra["lesson"]),
            str(extra["submission_sha256"]),
            str(extra["course_sha256"]),
            tuple(map(_exercise, content["tests"])),
            str(extra["problem"]),
            graded_now,
            str(extra.get("lost", "")),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} is not a result of labkit grade ({error}); grade that submission again with --again"
        ) from None


def find_result(path: Path, graded_now: bool = True) -> GradedSubmission | None:
    """Return what a result.json says, or None where there is none that can be read: then it must be graded."""
    try:
        return read_result(path, graded_now)
    except ConfigError:
        return None


def read_results(folder: Path) -> list[GradedSubmission]:
    """Return every result.json below a folder that `labkit grade` wrote, by student.

    Raises:
        ConfigError: If there is none, or one cannot be read.
    """
    paths = sorted(folder.glob("*/result.json"))
    if not paths:
        raise ConfigError(f"{folder} has no */result.json; name the folder that labkit grade wrote to with --out")
    return [read_result(path) for path in paths]


def _exercise(test: Any) -> GradedExercise:
    extra = test["extra_data"]
    number = str(test["number"])
    return GradedExercise(
        str(extra["exercise"]),
        float(test["score"]),
        float(test["max_score"]),
        str(extra["state"]),
        str(test["name"]).removeprefix(number).strip(),
        str(test["output"]),
        str(extra["mistake"]),
        number,
        str(extra.get("written", "")),
        str(extra.get("pack", "")),
    )
