"""Whose file it is, and what names, tables and databases of others can do to a class: nothing."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grading.small_lesson import RIGHT, write_submission
from labkit.cli import app
from labkit.errors import ConfigError
from labkit.grading.book.file_names import of_system
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.book.handed_in import read_times
from labkit.grading.book.handing_back import write_pages
from labkit.grading.book.roster_files import read_roster
from labkit.grading.reports.results import GradedExercise, GradedSubmission
from labkit.grading.score import submission_secret
from labkit.grading.submission import find_submissions
from labkit.interpreter import python

LESSON = "02_ring_all_reduce"


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Gradebook]:
    opened = Gradebook(f"sqlite:///{tmp_path / 'book.db'}")
    yield opened
    opened.close()


def file_of(name: str, file: str = "a") -> GradedSubmission:
    return GradedSubmission(name, LESSON, file * 64, "c" * 64, (GradedExercise("ring", 12, 12, "passed"),))


def add(book: Gradebook, path: Path, text: str) -> None:
    path.write_text(text)
    assert not book.import_roster(read_roster(path)).unclear


def test_moodles_own_number_counts_and_not_one_in_a_files_own_name() -> None:
    found = of_system("Evil Bob_1234_assignsubmission_file_x_9999_assignsubmission_file_")
    assert found is not None and (found.name, found.id) == ("Evil Bob", "1234")
    assert found.rest == "x_9999_assignsubmission_file_"


def test_a_login_that_ends_like_anothers_is_not_the_others(book: Gradebook, tmp_path: Path) -> None:
    add(book, tmp_path / "r.csv", "Name,GitHub\nAda,ada\nGrace,grace\nLove,love\nAda Love,ada-love\n")
    honest = ["02-ring-ada", "02-ring-grace", "02-ring-ada-love"]
    found = book.whose([*honest, "02-ring-mallory-ada", "02-ring-eve-grace"])
    assert found.people == dict(zip(honest, ["Ada", "Grace", "Ada Love"], strict=True))
    assert found.unknown == ("02-ring-mallory-ada", "02-ring-eve-grace")


def test_a_file_alone_is_told_by_those_that_were_recorded_before(book: Gradebook, tmp_path: Path) -> None:
    add(book, tmp_path / "r.csv", "Name,GitHub\nAda,ada\nGrace,grace\n")
    for name in ("02-ring-ada", "02-ring-grace"):
        folder = tmp_path / "graded" / name
        folder.mkdir(parents=True)
        (folder / "feedback.html").write_text("")
        (folder / "details.json").write_text("{}")
    book.record([file_of("02-ring-ada"), file_of("02-ring-grace", "b")], folder=tmp_path / "graded")
    assert book.whose(["02-ring-mallory-ada"]).unknown == ("02-ring-mallory-ada",)
    assert book.whose(["02-ring-ada"]).people == {"02-ring-ada": "Ada"}


def test_a_file_named_like_a_report_costs_nobody_anything(tmp_path: Path) -> None:
    names = ("class", "class.html", "copies", "copies.html", "index", "attempts", "Gradebook.CSV", "ada")
    for name in names:
        write_submission(tmp_path / "in" / f"{name}.ipynb", RIGHT)
    found, _ = find_submissions([tmp_path / "in"], "90_small")
    assert {each.name for each in found} == {"ada", *(f"{name}_" for name in names if name != "ada")}


def test_two_people_whose_names_are_one_as_a_files_have_a_page_each(book: Gradebook, tmp_path: Path) -> None:
    add(book, tmp_path / "r.csv", "Name,Email\nclass,a@x\nA/B,b@x\nA:B,c@x\n")
    for number, address in enumerate(("a@x", "b@x", "c@x")):
        book.record([file_of(address, "abc"[number])])
    assert write_pages(book, LESSON, tmp_path / "pages").num_pages == 3
    assert {path.name for path in (tmp_path / "pages").glob("*.html")} == {"class_.html", "A_B.html", "A_B_2.html"}


HEAD = "Name,Email,ID\n"
TABLES = {
    "a field of 200 kB": (
        HEAD + "A" * 200_000 + ",b@x,1\n",
        "after line 1 there is no row of a table|beyond a table",
    ),
    "a long name": (
        HEAD + "A" * 20_000 + ",b@x,1\n",
        "line 2, is beyond .*: row 1, with a field of 20,000",
    ),
    "rows of no class": (HEAD + "".join(f"S {n},{n}@x,{n}\n" for n in range(30_000)), "row 10,001"),
    "an open quote": (HEAD + '"' * 140_001 + "\n", "no row of a table|beyond a table|is not a roster|is never closed"),
    "time without end": (
        "Name,Extra time\nEve,99999999999 d\n",
        "line 2: '99999999999 d' is more extra time than a year",
    ),
    "binary": ("\udcff\udcfe\0\1", "cannot be read as a roster|is not a roster"),
}


@pytest.mark.parametrize("text", TABLES)
def test_a_table_beyond_bounds_is_told_by_its_line(text: str, tmp_path: Path) -> None:
    content, words = TABLES[text]
    (tmp_path / "r.csv").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=words):
        read_roster(tmp_path / "r.csv")


def test_names_steer_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(HEAD + "\x1b]0;TERM\x07\x1b[2Jada\u202e\0,z@x,8\n")
    (entry,) = read_roster(tmp_path / "r.csv")
    assert entry.name.isprintable() and entry.name.endswith("ada")
    url = f"sqlite:///{tmp_path / 'b.db'}"
    for words in (["import", str(tmp_path / "r.csv")], ["show"]):
        done = CliRunner().invoke(app, ["roster", *words, "--book", url])
        assert done.exit_code == 0 and "\x1b" not in done.output and "\u202e" not in done.output


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("deep.json", "[" * 100_000, "cannot be read"),
        ("big.json", '[{"user_id":' + "9" * 5000 + ',"submitted_at":"x"}]', "cannot be read"),
        ("late.json", '[{"user_id":1,"submitted_at":"9999-12-31T23:59:00-14:00"}]', "not in the years 1990 to 2200"),
        ("early.json", '[{"user_id":1,"submitted_at":"0001-01-01T00:00:00+14:00"}]', "not in the years 1990 to 2200"),
        ("long.csv", "Student,Handed in\n" + "a" * 200_000 + ",2026-01-01T00:00:00Z\n", "beyond a table|no row"),
    ],
    ids=lambda value: value if len(value) < 12 else "",
)
def test_times_beyond_bounds_are_told(name: str, text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_times(tmp_path / name)


def test_no_two_lists_of_answers_have_the_same_hidden_cases() -> None:
    one, other = [("a", "x\0b\0y")], [("a", "x"), ("b", "y")]
    assert submission_secret(one, b"key") != submission_secret(other, b"key")


def test_another_programs_database_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "places.sqlite"
    with sqlite3.connect(path) as theirs:
        theirs.execute("CREATE TABLE about (version INTEGER)")
        theirs.execute("CREATE TABLE bookmarks (title TEXT)")
    theirs.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"another program's database \(it has the tables about, bookmarks\)"):
        Gradebook(f"sqlite:///{path}")
    assert path.read_bytes() == before


@pytest.mark.in_turn
def test_graders_who_begin_a_gradebook_together_all_record_into_it(tmp_path: Path) -> None:
    """Each waits until all are ready; without a lock one finds a table that another is just making."""
    program = f"""
from sys import argv, stdin
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.reports.results import GradedExercise, GradedSubmission
name = argv[1]
print("ready", flush=True)
stdin.readline()
book = Gradebook({f"sqlite:///{tmp_path / 'new.db'}"!r})
book.record([GradedSubmission(name, {LESSON!r}, name * 64, "c" * 64, (GradedExercise("ring", 1, 1, "passed"),))])
book.close()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    graders = [subprocess.Popen(python("-c", program, name), **pipes) for name in "abcd"]  # type: ignore[call-overload]
    assert [each.stdout.readline() for each in graders] == ["ready\n"] * 4
    for each in graders:
        each.stdin.write("go\n")
        each.stdin.flush()
    assert [each.communicate(timeout=120)[1] for each in graders] == [""] * 4
    opened = Gradebook(f"sqlite:///{tmp_path / 'new.db'}")
    assert {grade.student for grade in opened.grades(LESSON)} == set("abcd")
    opened.close()
