"""The class's gradebook, made from what lies in each student's result.json."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.lessons.manifest import Manifest


@dataclass(frozen=True)
class Entry:
    """One student's line.

    Attributes:
        name: The submission's name.
        score: Points earned, bonus included.
        max_score: Full marks, without bonus.
        points: Points earned for each exercise, by id.
        problem: Why nothing could be graded, or "".
        submission_hash: Hash of what was handed in.
        course_hash: Hash of what else the score depends on.
        graded_now: False where the result of an earlier run was kept.
    """

    name: str
    score: float
    max_score: float
    points: dict[str, float]
    problem: str = ""
    submission_hash: str = ""
    course_hash: str = ""
    graded_now: bool = True


@dataclass(frozen=True)
class ClassReport:
    """What grading brought; iterates over its entries.

    Attributes:
        entries: One for each submission, by name.
        notes: What was passed over or renamed.
        seconds: How long it took.
        out: Where the reports are.
    """

    entries: tuple[Entry, ...]
    notes: tuple[str, ...]
    seconds: float
    out: Path

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def read_entry(path: Path, graded_now: bool = True) -> Entry | None:
    """Return the line of a result.json, or None where there is none that can be read."""
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        extra = content["extra_data"]
        return Entry(
            str(extra["name"]),
            float(content["score"]),
            float(extra["max_score"]),
            {str(test["number"]): float(test["score"]) for test in content["tests"]},
            str(extra["problem"]),
            str(extra["submission_sha256"]),
            str(extra["course_sha256"]),
            graded_now,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def gradebook_csv(entries: Iterable[Entry], manifest: Manifest) -> bytes:
    """Return the gradebook: a line for each student by name, a column for each exercise."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    ids = [exercise.id for exercise in manifest.exercises]
    writer.writerow(["Student", "Score", "Max Score", *ids, "Problem"])
    for entry in sorted(entries, key=lambda each: each.name):
        points = [f"{entry.points.get(number, 0.0):g}" for number in ids]
        writer.writerow([entry.name, f"{entry.score:g}", f"{entry.max_score:g}", *points, entry.problem])
    return text.getvalue().encode("utf-8")
