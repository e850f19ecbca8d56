"""Who is in a class, as the systems' files say it: one reader for each form, told apart by their columns.

Sources: Canvas, gradebook (Student "Lovelace, Ada", ID, SIS User ID, SIS Login ID, Section). Moodle, participants
("First name", "Last name" or "Surname", "Email address", "ID number", "Groups") and offline grading worksheet
("Identifier" "Participant 4711", "Full name", "Email address"). Gradescope, roster ("First Name", "Last Name" or
"Name", "SID", "Email", "Role", "Section"). GitHub Classroom, roster ("identifier", "github_username", "github_id",
"name").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from labkit.errors import ConfigError
from labkit.grading.book.csv_files import SWITCH, read_table
from labkit.grading.book.file_names import identity, key, plain
from labkit.grading.plain_text import plain_text

GRADESCOPE = "Gradescope"
_BEHIND_A_NAME = frozenset({"", "jr", "sr", "ii", "iii", "iv", "phd", "md", "bsc", "msc"})
_LENGTHS = {"min": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_LONGEST_EXTRA = timedelta(days=366)


@dataclass(frozen=True)
class Entry:
    """One person as a file has them.

    Attributes:
        name: "Ada Lovelace"; "" where the file has none.
        keys: Addresses, numbers and logins, and the numbers of their submissions to Gradescope.
        email: Or "".
        section: Or "".
        team: "" for none; None where the file does not say.
        extra: Time after a deadline that is theirs; None where the file does not say.
    """

    name: str
    keys: frozenset[str]
    email: str = ""
    section: str = ""
    team: str | None = None
    extra: timedelta | None = None

    @property
    def own(self) -> frozenset[str]:
        """The keys that are nobody else's: not the number of a submission, which a group has together."""
        return frozenset(each for each in self.keys if not each.startswith(key(GRADESCOPE, "")))

    @property
    def names(self) -> frozenset[str]:
        """How the name is written, "Ada Lovelace" and "Lovelace, Ada": others may have the same."""
        first, _, last = self.name.rpartition(" ")
        return frozenset({plain(self.name), plain(f"{last}, {first}") if first else ""}) - {""}


def read_roster(path: Path, *, groups_are_teams: bool = False) -> list[Entry]:
    """Return who is in a file: Canvas's, Moodle's, Gradescope's, GitHub Classroom's, or a plain CSV with Name.

    Args:
        path: The file.
        groups_are_teams: Whether people of one group of Moodle hand in together; mostly a group is a tutorial.

    Raises:
        ConfigError: If the file is none of these, or a row cannot be read.
    """
    table = read_table(path, "a roster")
    columns = {*table.columns, *table.english}
    if twice := [each for each in _TELL_APART if table.columns.count(table.column(each)) > 1]:
        raise ConfigError(f"{path} has the column {table.column(twice[0])} twice; take one of them out")
    for needed, read in _FORMS:
        if needed <= columns:
            found = []
            for line, row in table.in_english():
                try:
                    entry = read({name: " ".join(plain_text(value).split()) for name, value in row.items()})
                except ConfigError as error:
                    raise ConfigError(f"{path}, line {line}: {error}") from None
                if entry is not None and identity(entry.name):
                    entry = replace(entry, name=first_name_first(entry.name))
                    is_team = groups_are_teams and read is _moodle
                    found.append(replace(entry, team=_team(entry.section)) if is_team else entry)
            return found
    raise ConfigError(
        f"{path} is not a roster: export Canvas's gradebook, Moodle's participants or grading worksheet, Gradescope's "
        "or "
        "GitHub Classroom's roster, or write a CSV with Name (Email, ID, Login, GitHub, Section, Team, Extra time); "
        f"its columns are {', '.join(sorted(table.columns)) or 'none'}. If it is Moodle's in another language, {SWITCH}"
    )


NO_STUDENTS = ("", "Points Possible", "Student, Test")
"""What stands in Canvas's column of students and is none."""


def canvas_student(row: Mapping[str, str]) -> str:
    """Return a row's student as Canvas writes one, "Lovelace, Ada", also where it has first and last names apart."""
    whole = row.get("Student")
    parts = (row.get("LastName", "").strip(), row.get("FirstName", "").strip())
    return ", ".join(filter(None, parts)) if whole is None else whole.strip()


def first_name_first(name: str) -> str:
    """Return "Ada Lovelace" for "Lovelace, Ada"; what has no comma, or another behind it as "Jr.", as it is."""
    last, comma, first = name.partition(",")
    if not comma or "," in first or re.sub(r"\W", "", first).casefold() in _BEHIND_A_NAME:
        return name
    return f"{first.strip()} {last.strip()}"


def _canvas(row: Mapping[str, str]) -> Entry | None:
    student = canvas_student(row)
    login = row.get("SIS Login ID", "")
    if student in NO_STUDENTS or not any(map(identity, (row["ID"], row.get("SIS User ID"), login))):
        return None  # a line of points, in whatever language: Canvas gives each student a number
    found = _keys(row.get("SIS User ID", ""), login)
    found |= {key("Canvas", row["ID"])} if identity(row["ID"]) else set()
    return Entry(student, found, _address(login), row.get("Section", ""))


def _moodle(row: Mapping[str, str]) -> Entry | None:
    name = (
        row.get("Full name") or f"{row.get('First name', '')} {row.get('Last name') or row.get('Surname', '')}".strip()
    )
    email = row.get("Email address", "")
    found = _keys(email, row.get("ID number", ""), row.get("Username", ""))
    number = re.search(r"\d+", row.get("Identifier", ""))
    found |= {key("Moodle", number.group())} if number else set()
    return Entry(name, found, _address(email), row.get("Groups") or row.get("Group", ""))


def _gradescope(row: Mapping[str, str]) -> Entry | None:
    if row.get("Role", "Student") not in ("", "Student"):
        return None
    name = row.get("Name") or f"{row.get('First Name', '')} {row.get('Last Name', '')}".strip()
    found = _keys(row["Email"], row["SID"])
    if number := identity(row.get("Submission ID")):  # of "Download Grades"; everybody of a group has the same
        found |= {key(GRADESCOPE, number)}
    return Entry(name, found, _address(row["Email"]), row.get("Section") or row.get("Sections", ""))


def _github(row: Mapping[str, str]) -> Entry | None:
    named = row["identifier"]
    found = _keys(named, row["github_username"])
    return Entry(row.get("name") or named, found, _address(named))


def _plain(row: Mapping[str, str]) -> Entry | None:
    if not row["Name"]:
        return None
    names = ("Email", "ID", "Login", "GitHub")
    return Entry(
        row["Name"], _keys(*(row.get(name, "") for name in names)), _address(row.get("Email", "")),
        row.get("Section", ""), _team(row.get("Team", "")),
        _length(row["Extra time"]) if row.get("Extra time") else None,
    )  # fmt: skip


def _length(text: str) -> timedelta:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(min|h|d)", text)
    if found is None:
        raise ConfigError(f"{text!r} is not an extra time; write 90 min, 36 h or 2 d")
    if float(found[1]) > _LONGEST_EXTRA / _LENGTHS[found[2]]:
        raise ConfigError(f"{text!r} is more extra time than a year; write 90 min, 36 h or 2 d")
    return float(found[1]) * _LENGTHS[found[2]]


def _keys(*values: str) -> frozenset[str]:
    return frozenset(identity(_bare(each)) for each in values) - {""}


def _address(text: str) -> str:
    return _bare(text) if "@" in text and identity(text) else ""


def _bare(text: str) -> str:
    """Return an address without what a program for mail writes round it, "Ada <ada@uni.example>"; others as they are.

    Signs without width, which come along when an address is copied from a page, are left out.
    """
    text = text.translate(_NO_WIDTH)
    found = re.fullmatch(r"(?:.*<|mailto:|<)?(?:mailto:)?([^<>\s@]+@[^<>\s@]+)>?", text)
    return found[1] if found else text


_NO_WIDTH = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff"))
_TELL_APART = (
    "Name", "Student", "Full name", "First name", "Last name", "Email", "Email address", "ID", "ID number",
    "SIS User ID", "SIS Login ID", "Login", "GitHub", "SID", "Username", "identifier", "github_username",
)  # fmt: skip
"""Columns of which a second one would say that somebody is another."""


def _team(text: str) -> str | None:
    """Return a team, "" where the cell says that there is none, None where it says nothing."""
    return text if identity(text) else "" if text else None


_FORMS: tuple[tuple[set[str], Callable[[Mapping[str, str]], Entry | None]], ...] = (
    ({"Student", "ID", "Section"}, _canvas),
    ({"LastName", "FirstName", "ID", "Section"}, _canvas),
    ({"Identifier", "Full name"}, _moodle),
    ({"First name", "Email address"}, _moodle),
    ({"SID", "Email"}, _gradescope),
    ({"identifier", "github_username"}, _github),
    ({"Name"}, _plain),
)
