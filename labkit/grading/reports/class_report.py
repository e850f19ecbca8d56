"""What a grading run brought for the class, and its table: a line for each student, a column for each exercise."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from labkit.grading.course import Course
from labkit.grading.reports.feedback import write_headings
from labkit.grading.reports.results import GradedSubmission
from labkit.grading.reports.spreadsheet import inert
from labkit.grading.reports.student_report import as_json, write_whole
from labkit.grading.submission import Submission
from labkit.lessons.manifest import Manifest
from labkit.progress import Told, untold

if TYPE_CHECKING:
    from labkit.grading.reports.copies import Copies, Work

CASES = ".cases.json"
"""Whose files are alike, by the case's id, as copies.html lists them; no student's folder is called so."""


@dataclass(frozen=True)
class ClassReport:
    """What grading brought; iterates over its entries.

    Attributes:
        entries: One for each submission, by name.
        notes: What was passed over or renamed.
        seconds: How long it took.
        out: Where the reports are.
        paths: What was handed in, by name.
        people: What people call whoever handed it in, by name, where that is known.
    """

    entries: tuple[GradedSubmission, ...]
    notes: tuple[str, ...]
    seconds: float
    out: Path
    paths: Mapping[str, Path] = field(default_factory=dict)
    people: Mapping[str, str] = field(default_factory=dict)

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
        row = [
            inert(entry.name),
            f"{entry.score:g}",
            f"{entry.max_score:g}",
            *points,
            inert(entry.problem or entry.lost),
        ]
        writer.writerow(row)
    return text.getvalue().encode("utf-8")


def write_class(
    out: Path,
    entries: Sequence[GradedSubmission],
    submissions: Sequence[Submission],
    course: Course,
    packs: Sequence[Mapping[str, str]] = (),
    people: Mapping[str, str] | None = None,
) -> None:
    """Write ``gradebook.csv`` and, of more than one submission, ``class.html`` and ``copies.html``.

    Feedback is written again where its owner is not called as the file is.

    Args:
        out: The folder.
        entries: What was graded.
        submissions: What was handed in.
        course: The lesson.
        packs: Answers that were handed out, which make nobody alike.
        people: Whose files are, by their names; a file of nobody known goes by its own.
    """
    people = people or {}
    write_headings(out, entries, course.manifest.title, people)
    write_whole(out / "gradebook.csv", class_csv(entries, course.manifest))
    if len(entries) > 1:
        from labkit.grading.book.file_names import of_system
        from labkit.grading.reports.class_page import Line, class_page
        from labkit.grading.reports.copies_page import copies_page

        hashes = {each.name: each.submission_sha256 for each in entries}
        works = read_works(submissions, course, hashes)
        found = find_copies(works, course, packs)
        lines = [
            Line(
                people.get(each.name, each.name), f"{quote(each.name)}/feedback.html", each.score, each,
                "late" if (named := of_system(each.name)) and named.late else "",
            )
            for each in entries
        ]  # fmt: skip
        write_whole(out / "class.html", class_page(lines, course.manifest.title, found.cases))
        write_whole(out / "copies.html", copies_page(found, works, course.manifest, {}, people))
        write_whole(out / CASES, as_json({case.id: " and ".join(case.names) for case in found.cases}))


def read_cases(folder: Path) -> dict[str, str]:
    """Return the cases that a grading run listed, whose files are alike by id; {} where it listed none."""
    try:
        found = json.loads((folder / CASES).read_text(encoding="utf-8"))
        return {str(case): str(names) for case, names in found.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def read_works(
    submissions: Sequence[Submission],
    course: Course,
    hashes: Mapping[str, str],
    origin: str = "",
    owners: Mapping[str, str] | None = None,
    told: Told = untold,
) -> list[Work]:
    """Return submissions as they are compared; what cannot be read holds no answers.

    Args:
        submissions: Of this class, or of an earlier one.
        course: The lesson.
        hashes: Of their files, by name.
        origin: Of an earlier class, where it comes from.
        owners: Whose each is; of others the name tells.
        told: Told each before it is read.
    """
    from labkit.grading.book.file_names import owner
    from labkit.grading.file_reader import FileReader
    from labkit.grading.reports.copies import Work
    from labkit.grading.reports.similarity import answers

    works: list[Work] = []
    with FileReader() as files:
        for each in submissions:
            told(each.name, len(works), len(submissions))
            name = f"{origin}: {each.name}" if origin else each.name
            read = files.read(each)
            whose = (owners or {}).get(each.name) or owner(each.name)
            held = answers(read.cells, course.pristine)
            works.append(Work(name, held, hashes.get(each.name, ""), origin, whose, read.problem))
    return works


def find_copies(works: Sequence[Work], course: Course, packs: Sequence[Mapping[str, str]] = ()) -> Copies:
    """Return who is alike, beyond what the lesson's cells held when they were handed out."""
    from labkit.grading.reports.copies import copies

    handed_out = {
        str(cell["metadata"]["labkit"]["exercise"]): str(cell["source"])
        for cell in course.pristine["cells"]
        if "exercise" in cell["metadata"].get("tags", [])
    }
    return copies(works, handed_out, packs)
