"""When each student handed in, as the system says it that took the files, or a table of the instructor's.

Nothing here rests on a clock of a student: a commit's date is set by who makes it.

Sources: Moodle, offline grading worksheet ("Last modified (submission)", in the language and zone of who exported it).
Canvas, Submissions API, `GET /api/v1/courses/:course_id/assignments/:assignment_id/submissions`: a list of objects with
`user_id` and `submitted_at`. Gradescope, "Download Grades": "Submission Time", 2022-06-25 13:16:26 -0600. GitHub
Classroom, "Download grades" and REST `GET /assignments/ID/grades` (docs.github.com/en/rest/classroom/classroom):
`submission_timestamp`, which GitHub wrote when it got the push.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

from labkit.errors import ConfigError
from labkit.grading.book.class_time import in_zone, moment
from labkit.grading.book.csv_files import SWITCH, read_table
from labkit.grading.book.file_names import identity, key, keys

_MOODLE_FORMS = (
    "%A, %d %B %Y, %I:%M %p",
    "%A, %d %B %Y, %H:%M",
    "%A, %B %d, %Y, %I:%M %p",
    "%d %B %Y, %I:%M %p",
    "%d %B %Y, %H:%M",
)
_LISTED = 12
_STARTS = (
    "jan ene gen", "feb fév fev", "mär mar maa", "apr avr abr", "mai may mag mei", "juin jun giu", "juil jul lug",
    "aug aoû ago", "sep set", "okt oct ott out", "nov", "dez déc dic dec",
)  # fmt: skip
_MONTHS = {start: month for month, starts in enumerate(_STARTS, start=1) for start in starts.split()}
"""Months by how they begin, in English, German, French, Spanish, Italian, Portuguese and Dutch."""


@dataclass(frozen=True)
class Row:
    """A line that says when somebody handed in.

    Attributes:
        who: As people read it.
        keys: What the student's files can be known by.
        at: When.
    """

    who: str
    keys: frozenset[str]
    at: datetime


@dataclass(frozen=True)
class Times:
    """What a file says of when students handed in.

    Attributes:
        source: What the file is, for the record.
        rows: Who has a time in it.
        complete: Whether each row must be of somebody who handed in here: so of a table that an instructor wrote.
    """

    source: str
    rows: tuple[Row, ...]
    complete: bool


@dataclass(frozen=True)
class Assigned:
    """Times, each with its submission.

    Attributes:
        times: By the submission's name.
        unmatched: Rows that are of no submission here.
        ambiguous: Submissions and rows of which it is not clear whose they are, in words.
    """

    times: Mapping[str, datetime]
    unmatched: tuple[str, ...]
    ambiguous: tuple[str, ...]


def read_times(path: Path, zone: tzinfo | None = None) -> Times:
    """Return when students handed in: from what a learning platform exports, or a CSV with Student and Handed in.

    Args:
        path: A CSV, or the JSON of Canvas's Submissions API.
        zone: The class's; of times that name none.

    Raises:
        ConfigError: If the file is none of these, or a time cannot be read.
    """
    rows = _rows(path)
    columns = {str(name) for _, row in rows for name in row}
    is_json = path.suffix.casefold() == ".json"
    for needed, what, read in _KINDS:
        if needed <= columns:
            found = []
            for number, row in rows:
                try:
                    found += read(row, zone)
                except ConfigError as error:
                    raise ConfigError(f"{path}, {'entry' if is_json else 'line'} {number}: {error}") from None
            return Times(f"{what} {path.name}".strip(), tuple(found), complete=not what)
    raise ConfigError(
        f"{path} does not say when students handed in: its first line has no columns Student and Handed in, and it is "
        "none of "
        "Moodle's grading worksheet, Canvas's submissions, Gradescope's grades and GitHub Classroom's "
        f"grades; its columns are {', '.join(sorted(columns)) or 'none'}"
    )


def assign(times: Times, names: Iterable[str], known_by: Callable[[str], frozenset[str]] = keys) -> Assigned:
    """Return which time belongs to which submission; what is not clear is told and left out.

    Args:
        times: What a file says.
        names: The submissions here.
        known_by: What each can be known by.

    Raises:
        ConfigError: If the file must be complete and a row is of no submission, or of several.
    """
    by_key: dict[str, set[str]] = {}
    for name in names:
        for each in known_by(name):
            by_key.setdefault(each, set()).add(name)
    found: dict[str, list[Row]] = {}
    unmatched, ambiguous = [], []
    for row in times.rows:
        mine = sorted(set().union(*(by_key.get(each, set()) for each in row.keys)))
        if not mine:
            unmatched.append(row.who)
        elif len(mine) > 1:
            ambiguous.append(f"the row of {row.who} fits {' and '.join(mine)}")
        else:
            found.setdefault(mine[0], []).append(row)
    for name, rows in found.items():
        if len({row.at for row in rows}) > 1:
            ambiguous.append(f"{name} fits the rows of {' and '.join(row.who for row in rows)}")
    if times.complete and (unmatched or ambiguous):
        told = [f"nobody called {who} has handed in" for who in unmatched] + ambiguous
        more = f", and {len(told) - _LISTED} more" if len(told) > _LISTED else ""
        raise ConfigError(
            f"{times.source}: {'; '.join(told[:_LISTED])}{more}. Nothing was recorded; correct these rows and run it "
            "again"
        )
    clear = {name: rows[0].at for name, rows in found.items() if len({row.at for row in rows}) == 1}
    return Assigned(clear, tuple(unmatched), tuple(ambiguous))


def _rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of a CSV or JSON file with their lines; of a CSV that has none, one of empty fields."""
    if path.suffix.casefold() == ".json":
        try:
            listed = json.loads(path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} cannot be read ({error})") from None
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            raise ConfigError(f"{path} is not a list of submissions as the interface of Canvas or GitHub returns one")
        return list(enumerate(listed, start=1))
    table = read_table(path, "a table of when students handed in")
    rows: list[tuple[int, dict[str, Any]]] = [*table.in_english()]
    return rows or [(1, dict.fromkeys([*table.columns, *table.english], ""))]


def _plain_row(row: Mapping[str, Any], zone: tzinfo | None) -> list[Row]:
    if not row["Student"].strip() and not row["Handed in"].strip():
        return []
    return [Row(row["Student"], keys(row["Student"]), moment(row["Handed in"], zone))]


def _moodle_row(row: Mapping[str, Any], zone: tzinfo | None) -> list[Row]:
    text = re.sub(r"\s+", " ", row["Last modified (submission)"]).strip()
    if text in ("", "-"):
        return []
    for form in _MOODLE_FORMS:
        try:
            found = datetime.strptime(text, form)
        except ValueError:
            continue
        return [_of_moodle(row, in_zone(found, zone, text))]
    if (told := _in_words(text)) is not None:
        return [_of_moodle(row, in_zone(told, zone, text))]
    raise ConfigError(f"{text!r} is not a time that is known of Moodle (Wednesday, 2 December 2026, 5:20 PM): {SWITCH}")


def _of_moodle(row: Mapping[str, Any], at: datetime) -> Row:
    who = row.get("Full name") or row["Identifier"]
    return Row(who, _keys(row, "Moodle", _digits(row["Identifier"]), _MOODLE), at)


def _in_words(text: str) -> datetime | None:
    """Return a time in another language of Moodle's: "Mittwoch, 2. Dezember 2026, 17:20"."""
    found = re.search(r"(\d{1,2})\.? (?:de |d')?([^\W\d]+)\.? (?:de )?(\d{4}),? (\d{1,2}):(\d\d)$", text)
    named = found[2].casefold() if found else ""
    month = _MONTHS.get(named[:4]) or _MONTHS.get(named[:3])
    if found is None or month is None:
        return None
    try:
        return datetime(int(found[3]), month, int(found[1]), int(found[4]), int(found[5]))
    except ValueError:
        return None


def _canvas_row(row: Mapping[str, Any], zone: tzinfo | None) -> list[Row]:
    if not row.get("submitted_at"):
        return []
    user = row.get("user") if isinstance(row.get("user"), dict) else {}
    assert isinstance(user, dict)
    named = {name: str(user.get(name) or row.get(name) or "") for name in _CANVAS}
    who = next((named[name] for name in ("name", "login_id", "sis_user_id") if named[name]), f"user {row['user_id']}")
    return [Row(who, _keys(named, "Canvas", str(row["user_id"]), _CANVAS), moment(str(row["submitted_at"]), zone))]


def _gradescope_row(row: Mapping[str, Any], zone: tzinfo | None) -> list[Row]:
    text = row["Submission Time"].strip()
    if not text:
        return []
    who = row.get("Name") or f"{row.get('First Name', '')} {row.get('Last Name', '')}".strip() or row.get("Email", "")
    found = _keys({**row, "Name": who}, "Gradescope", row.get("Submission ID", ""), ("Name", "Email", "SID"))
    return [Row(who, found, moment(re.sub(r" ([+-]\d\d):?(\d\d)$", r"\1:\2", text), zone))]


def _github_row(row: Mapping[str, Any], zone: tzinfo | None) -> list[Row]:
    text = str(row.get("submission_timestamp") or "").strip()
    if not text:
        return []
    names = ("github_username", "roster_identifier", "student_repository_name")
    return [
        Row(
            str(row["github_username"]),
            frozenset(identity(str(row.get(name) or "")) for name in names) - {""},
            _utc(text),
        )
    ]


def _utc(text: str) -> datetime:
    """Return a time of GitHub's, which is in UTC where it names no zone."""
    text = re.sub(r" ?UTC$", "Z", text)
    return moment(text if re.search(r"(Z|[+-]\d\d:?\d\d)$", text) else f"{text}Z")


def _keys(row: Mapping[str, Any], system: str, number: str, names: Iterable[str]) -> frozenset[str]:
    found = {identity(str(row.get(name) or "")) for name in names}
    return frozenset(found | ({key(system, number)} if number else set())) - {""}


def _digits(text: str) -> str:
    found = re.search(r"\d+", text)
    return found.group() if found else ""


_MOODLE = ("Full name", "Email address", "ID number", "Username", "Identifier")
_CANVAS = ("name", "sortable_name", "login_id", "sis_user_id", "email")
_KINDS: tuple[tuple[set[str], str, Callable[[Mapping[str, Any], tzinfo | None], list[Row]]], ...] = (
    ({"Student", "Handed in"}, "", _plain_row),
    ({"Identifier", "Last modified (submission)"}, "Moodle's", _moodle_row),
    ({"user_id", "submitted_at"}, "Canvas's", _canvas_row),
    ({"Submission Time", "Submission ID"}, "Gradescope's", _gradescope_row),
    ({"github_username", "submission_timestamp"}, "GitHub Classroom's", _github_row),
)
