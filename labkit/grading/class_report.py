"""What a grading run brought for the class, and its table: a line for each student, a column for each exercise."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from labkit.grading.results import GradedSubmission
from labkit.grading.spreadsheet import inert
from labkit.lessons.manifest import Manifest


@dataclass(frozen=True)
class ClassReport:
    """What grading brought; iterates over its entries.

    Attributes:
        entries: One for each submission, by name.
        notes: What was passed over or renamed.
        seconds: How long it took.
        out: Where the reports are.
    """

    entries: tuple[GradedSubmission, ...]
    notes: tuple[str, ...]
    seconds: float
    out: Path

    def __iter__(self) -> Iterator[GradedSubmission]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def class_csv(entries: Iterable[GradedSubmission], manifest: Manifest) -> bytes:
    """Return the class's table: a line for each student by name, a column for each exercise."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    ids = [exercise.id for exercise in manifest.exercises]
    writer.writerow(["Student", "Score", "Max Score", *ids, "Problem"])
    for entry in sorted(entries, key=lambda each: each.name):
        points = [f"{entry.points.get(number, 0.0):g}" for number in ids]
        row = [inert(entry.name), f"{entry.score:g}", f"{entry.max_score:g}", *points, inert(entry.problem)]
        writer.writerow(row)
    return text.getvalue().encode("utf-8")
