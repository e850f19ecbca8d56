"""Grades in the sheets that Canvas and Moodle export and take back: the instructor's file, with one column filled.

Sources: Canvas, "How do I import grades in the Gradebook?" (columns Student, ID, SIS User ID, SIS Login ID, Section,
then "title (assignment id)"); Moodle, "Assignment settings", offline grading worksheet (Identifier "Participant 123",
Grade).
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from pathlib import Path

from labkit.errors import ConfigError
from labkit.grading.book.csv_files import SWITCH, TableFile, read_table
from labkit.grading.book.file_names import identity, key, keys, plain
from labkit.grading.book.roster_files import NO_STUDENTS, canvas_student
from labkit.grading.book.standing import Grade
from labkit.grading.reports.spreadsheet import inert

_CANVAS_NAMES = ("Student", "ID", "SIS User ID", "SIS Login ID")
_MOODLE_NAMES = ("Identifier", "Full name", "Email address", "ID number", "Username")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Sheet:
    """A filled sheet.

    Attributes:
        data: The CSV, as the learning platform takes it.
        num_filled: Rows that got a grade.
        unmatched: Students who have a grade and no row.
        ambiguous: Grades and rows of which it is not clear whose they are, in words; none of these is filled in.
        capped: Grades beyond the maximum of Moodle's sheet, in words (the maximum is filled in), and whether Canvas's
            column has other full marks.
    """

    data: bytes
    num_filled: int
    unmatched: tuple[str, ...]
    ambiguous: tuple[str, ...] = ()
    capped: tuple[str, ...] = ()


def grades_csv(grades: Iterable[Grade], zone: tzinfo = UTC) -> bytes:
    """Return every grade as a plain table: a line for each student, a column for each exercise.

    Args:
        grades: Everybody's.
        zone: The class's, in which times stand.
    """
    listed = list(grades)
    exercises = list(dict.fromkeys(exercise for grade in listed for exercise in grade.points))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["Student", "Score", "Max Score", "Late %", "Adjusted", "Attempts", "Handed in", *exercises])
    for grade in listed:
        at = grade.handed_in_at
        moment = at.astimezone(zone).isoformat(timespec="minutes") if at else ""
        points = [f"{grade.points[exercise]:g}" if exercise in grade.points else "" for exercise in exercises]
        numbers = [f"{value:g}" for value in (grade.score, grade.max_score, grade.percent_lost, grade.adjusted)]
        writer.writerow([inert(grade.student), *numbers, grade.num_attempts, moment, *points])
    return text.getvalue().encode("utf-8")


def canvas_csv(
    roster: Path, column: str, grades: Iterable[Grade], known_by: Callable[[str], frozenset[str]] = keys
) -> Sheet:
    """Return a gradebook exported from Canvas with one assignment's column filled.

    A student is found by a value of Student, ID, SIS User ID or SIS Login ID, or by the ID within the name that Canvas
    gives downloaded files (``lovelaceada_4711_99_lab.ipynb``).

    Args:
        roster: The file Canvas exported.
        column: The assignment's column, or how it begins; "02 Ring (1234)".
        grades: What students have.
        known_by: What each can be known by.

    Raises:
        ConfigError: If the file is no Canvas export, or the column is not there or not the only one.
    """
    table = read_table(roster, "a gradebook exported from Canvas")
    _need(
        roster,
        table,
        ("ID", "LastName", "FirstName") if "LastName" in table.columns else ("Student", "ID"),
        "a gradebook exported from Canvas",
    )
    rows = [row for _, row in table.rows]
    chosen = _column(table.columns, column, roster)
    students = [row for row in rows if canvas_student(row) not in NO_STUDENTS]
    listed = list(grades)
    sheet = _filled(table, rows, students, chosen, "ID", canvas_student, _CANVAS_NAMES, listed, known_by)
    return replace(sheet, capped=(*sheet.capped, *_other_full_marks(rows, chosen, listed)))


def _other_full_marks(rows: list[dict[str, str]], column: str, grades: list[Grade]) -> list[str]:
    """Return a sentence if Canvas has other full marks for a column than the grades; it takes more points than full."""
    full = max((grade.max_score for grade in grades), default=0.0)
    possible = [row[column].strip() for row in rows if canvas_student(row) == "Points Possible"]
    return [
        f"{column} has {each} points in Canvas, these grades have {full:g} for full marks; change it in Canvas"
        for each in possible
        if re.fullmatch(r"\d+([.,]\d+)?", each) and float(each.replace(",", ".")) != full
    ]


def moodle_csv(worksheet: Path, grades: Iterable[Grade], known_by: Callable[[str], frozenset[str]] = keys) -> Sheet:
    """Return Moodle's offline grading worksheet with its column Grade filled.

    A student is found by a value of Identifier, Full name, Email address, ID number or Username, or by the participant
    number within the name that Moodle gives downloaded folders (``Ada Lovelace_4711_assignsubmission_file``).

    Raises:
        ConfigError: If the file is no offline grading worksheet.
    """
    table = read_table(worksheet, "an offline grading worksheet of Moodle")
    _need(worksheet, table, ("Identifier", "Grade"), "an offline grading worksheet of Moodle")
    rows = [row for _, row in table.rows]
    number, names = table.column("Identifier"), [table.column(each) for each in _MOODLE_NAMES]
    return _filled(
        table, rows, rows, table.column("Grade"), number, lambda row: row[number].strip(), names, list(grades), known_by
    )


def _filled(
    table: TableFile,
    rows: list[dict[str, str]],
    students: list[dict[str, str]],
    column: str,
    number_column: str,
    told: Callable[[Mapping[str, str]], str],
    identifying: Sequence[str],
    grades: list[Grade],
    known_by: Callable[[str], frozenset[str]],
) -> Sheet:
    by_key: dict[str, list[Grade]] = defaultdict(list)
    for grade in grades:
        for each in known_by(grade.student):
            by_key[each].append(grade)
    of_row = []
    for row in students:
        own = _row_keys(row, number_column, identifying) | ({plain(told(row))} - {""})
        found = {grade.student: grade for each in own for grade in by_key[each]}
        of_row.append((row, list(found.values())))
    num_rows = Counter(grade.student for _, mine in of_row for grade in mine)
    taken: set[str] = set()
    ambiguous, capped = [], []
    for row, mine in of_row:
        who = told(row)
        if len(mine) > 1:
            ambiguous.append(f"{' and '.join(sorted(grade.student for grade in mine))} fit the row of {who}")
        elif mine and num_rows[mine[0].student] > 1:
            ambiguous.append(f"{mine[0].student} fits {num_rows[mine[0].student]} rows, one of them of {who}")
        elif mine:
            if not mine[0].num_attempts and not mine[0].adjusted:
                continue  # nothing was handed in: the instructor says what that is
            most = row.get(table.column("Maximum Grade")) or row.get("Maximum grade") or ""
            score = mine[0].score
            if re.fullmatch(r"\d+([.,]\d+)?", most.strip()) and score > float(most.replace(",", ".")):
                score = float(most.replace(",", "."))
                capped.append(
                    f"{mine[0].student} has {mine[0].score:g}, the sheet allows at most {score:g}, which was written"
                )
            row[column] = f"{score:g}".replace(".", "," if table.delimiter == ";" else ".")
            taken.add(mine[0].student)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, table.columns, lineterminator="\r\n", delimiter=table.delimiter)
    writer.writeheader()
    writer.writerows(rows)
    missing = tuple(
        grade.student for grade in grades if not num_rows[grade.student] and (grade.num_attempts or grade.adjusted)
    )
    encoding = "utf-8-sig" if table.is_marked else "utf-8"
    return Sheet(text.getvalue().encode(encoding), len(taken), missing, tuple(ambiguous), tuple(capped))


def _row_keys(row: Mapping[str, str], number_column: str, identifying: Sequence[str]) -> set[str]:
    """Return what the student of a row can be known by: whole values, and the number that file names bear."""
    found = {identity(row.get(name)) for name in identifying} - {""}
    number = _NUMBER.search(row.get(number_column) or "")
    system = "Canvas" if "Student" in row or "LastName" in row else "Moodle"
    return found | ({key(system, number.group())} if number else set())


def _need(path: Path, table: TableFile, needed: Sequence[str], what: str) -> None:
    there = {*table.columns, *table.english}
    if missing := [name for name in needed if name not in there]:
        raise ConfigError(
            f"{path} is not {what}: it has no column {' and no column '.join(missing)}. If it is Moodle's in another "
            f"language, {SWITCH}"
        )


def _column(names: Sequence[str], wanted: str, path: Path) -> str:
    exact = [name for name in names if name == wanted]
    found = exact or [name for name in names if name.startswith(wanted)]
    if len(found) != 1:
        assignments = ", ".join(name for name in names if re.search(r"\(\d+\)$", name)) or "none"
        raise ConfigError(
            f"{path} has {len(found)} columns that begin with {wanted!r}; its assignments are: {assignments}"
        )
    return found[0]
