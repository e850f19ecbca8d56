"""What a grading run left in its folder, read for the gradebook."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from labkit.errors import ConfigError


@dataclass(frozen=True)
class GradedExercise:
    """One exercise in a result.json.

    Attributes:
        id: "2.7".
        points: What it earned.
        max_points: What counts towards full marks: 0 for a bonus.
        state: "passed", "failed", "not_done" or "not_graded".
    """

    id: str
    points: float
    max_points: float
    state: str


@dataclass(frozen=True)
class GradedSubmission:
    """One student's result.json.

    Attributes:
        student: The submission's name.
        lesson: Of the course.
        submission_sha256: Of the file handed in.
        course_sha256: Of all else the score rests on.
        exercises: In the lesson's order.
    """

    student: str
    lesson: str
    submission_sha256: str
    course_sha256: str
    exercises: tuple[GradedExercise, ...]


def read_results(folder: Path) -> list[GradedSubmission]:
    """Return every result.json below a folder that `labkit grade` wrote, by student.

    Raises:
        ConfigError: If there is none, or one cannot be read.
    """
    paths = sorted(folder.glob("*/result.json"))
    if not paths:
        raise ConfigError(f"{folder} holds no */result.json; name the folder that was --out of labkit grade")
    return [_read(path) for path in paths]


def _read(path: Path) -> GradedSubmission:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        extra = content["extra_data"]
        exercises = tuple(
            GradedExercise(
                str(test["number"]), float(test["score"]), float(test["max_score"]), str(test["extra_data"]["state"])
            )
            for test in content["tests"]
        )
        return GradedSubmission(
            str(extra["name"]), str(extra["lesson"]), str(extra["submission_sha256"]), str(extra["course_sha256"]),
            exercises,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is not a result of labkit grade ({error}); grade that submission again with --again"
        ) from None


def read_times(path: Path) -> dict[str, datetime]:
    """Return when each student handed in, from a CSV with the columns Student and Handed in (ISO 8601 with a zone).

    Raises:
        ConfigError: If a column is missing or a time has no zone.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        missing = {"Student", "Handed in"} - set(rows.fieldnames or ())
        if missing:
            raise ConfigError(f"{path} has no column {' and no column '.join(sorted(missing))} in its first line")
        times = {}
        for number, row in enumerate(rows, start=2):
            try:
                moment = datetime.fromisoformat(row["Handed in"].strip())
            except ValueError:
                moment = None
            if moment is None or moment.tzinfo is None:
                raise ConfigError(
                    f"{path}, line {number}: {row['Handed in']!r} is not a time with its zone, "
                    "such as 2026-12-01T18:00+01:00"
                )
            times[row["Student"]] = moment
    return times
