"""Rosters as people and programs really leave them: nobody becomes another, nobody is added who is none."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from labkit.errors import ConfigError
from labkit.grading.book.roster_files import read_roster

PLAIN = "Name,Email\nAda Lovelace,ada@x.edu\nBob Ray,bob@x.edu\n"
CANVAS = "Student,ID,SIS User ID,SIS Login ID,Section,HW\n"
ADA, BOB = ("Ada Lovelace", "ada@x.edu"), ("Bob Ray", "bob@x.edu")


def people(folder: Path, text: str) -> list[tuple[str, str]]:
    path = folder / "roster.csv"
    path.write_bytes(text.encode("utf-8"))
    return [(each.name, next(iter(key for key in each.keys if "@" in key), "")) for each in read_roster(path)]


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace(",", "|"), PLAIN.replace("\n", "\r"), PLAIN + PLAIN.splitlines()[0] + "\n",
        PLAIN.replace("Ada Lovelace", '"Ada\nLovelace"'), PLAIN.replace("Ada Lovelace", "Ada\u00a0 Lovelace"),
        PLAIN.replace("ada@x.edu", "mailto:ada@x.edu"), PLAIN.replace("ada@x.edu", "Ada L. <ada@x.edu>"),
        PLAIN.replace("ada@x.edu", "<ADA@x.edu>"), PLAIN.replace("ada@x.edu", "a\u200bda@x.edu\ufeff"),
    ],
    ids=[
        "pipes", "an old Mac's lines", "the first line twice", "a line break in a name", "two kinds of space", "mailto",
        "a name before the address", "brackets", "signs without width",
    ],
)  # fmt: skip
def test_two_people_are_two_people(tmp_path: Path, text: str) -> None:
    assert people(tmp_path, text) == [ADA, BOB]


@pytest.mark.parametrize("header", ["Prénom,Nom de famille,Adresse de courriel", "Nombre,Apellidos,Dirección de correo "
                                    "electrónico"])  # fmt: skip
def test_letters_in_two_pieces_are_letters(tmp_path: Path, header: str) -> None:
    rows = f"{header}\nAda,Lovelace,ada@x.edu\nBob,Ray,bob@x.edu\n"
    assert people(tmp_path, unicodedata.normalize("NFD", rows)) == people(tmp_path, rows) == [ADA, BOB]


def test_a_line_of_points_is_nobody_in_any_language(tmp_path: Path) -> None:
    rows = '    Maximale Punktzahl,,,,,10\n,,,,,Manuell\n"Lovelace, Ada",1,s1,ada@x.edu,A,\n'
    assert people(tmp_path, CANVAS + rows) == [ADA]


def test_a_second_column_of_addresses_is_not_taken_for_the_first(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has the column Email twice"):
        people(tmp_path, "Name,Email,Email\nAda Lovelace,ada@x.edu,eve@x.edu\n")


def test_a_quotation_mark_that_is_never_closed_does_not_swallow_people(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="opens in line 3 is never closed"):
        people(tmp_path, PLAIN.replace("Bob", '"Bob') + "Cy Vo,cy@x.edu\n")
