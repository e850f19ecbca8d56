"""A class of 40 on two platforms, from release to sheets with the commands an instructor types, notebooks and all.

Half of them hand in on Canvas, half on a German Moodle. Most notebooks are right, changed by one habit of honest
learners. One person hands in another lesson, one a torn file, one nothing, one twice; two bear one name; one asks for
another look in a mail whose lines were wrapped.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.sandbox import bubblewrap
from tests.grading.honest_habits import habits, places
from tests.submissions.making import everything

ROOT = Path(__file__).parents[2]
LESSON = "01"
# fmt: off
GIVEN = ["Ada", "Björn", "Chen", "Dana", "Eli", "Fatima", "Goran", "Hana", "Inês", "Jan", "Kofi", "Lena", "Márton",
         "Nadia", "Olu", "Petra", "Quentin", "Rosa", "Sven", "Tariq"]
FAMILY = ["Álvarez", "Böhm", "Castro", "Dvořák", "Eriksen", "Farah", "Gül", "Håland", "Ito", "Schmidt"]
# fmt: on
PEOPLE = [(GIVEN[at % 20], FAMILY[at % 10] + (f"-{FAMILY[at % 7]}" if at >= 20 else "")) for at in range(40)]
PEOPLE[29] = PEOPLE[9]
"""Two of the name of Jan Schmidt, whom Moodle tells apart by number."""
TORN, OTHER, NOTHING, TWICE, ASKS, HABITS_FROM = 3, 5, 7, 10, 13, 14
COLUMN = "01 Data parallel (77)"


def run(*arguments: object, code: int = 0, stdin: str | None = None) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments], input=stdin)
    assert done.exit_code == code, (arguments, done.output[-3000:], done.exception)
    return done.output


def address(number: int) -> str:
    return f"p{number:02}@uni.example"


def file_of(number: int, again: bool = False) -> str:
    """Where the platform puts a file: Canvas's squeezed names, Moodle's folders."""
    given, family = PEOPLE[number]
    if number % 2:
        return f"{given} {family}_{4700 + number}_assignsubmission_file_/01_data_parallel.ipynb"
    squeezed = re.sub(r"[^\w]", "", f"{family}{given}".lower())
    return f"{squeezed}{'_LATE' if again else ''}_{500 + number}_{9000 + number + 500 * again}_01_data_parallel.ipynb"


def canvas(path: Path) -> Path:
    lines = [f"Student,ID,SIS User ID,SIS Login ID,Section,{COLUMN}", "    Points Possible,,,,,100"]
    lines += [
        f'"{family}, {given}",{500 + number},s{number},{address(number)},A,'
        for number, (given, family) in enumerate(PEOPLE) if not number % 2
    ]  # fmt: skip
    path.write_text("\n".join([*lines, '"Student, Test",9,,,A,']) + "\n", encoding="utf-8-sig")
    return path


def moodle(path: Path) -> Path:
    """The grading worksheet of a German Moodle; who asks for another look came a day late."""
    header = "ID,Vollständiger Name,E-Mail-Adresse,Status,Bewertung,Bestwertung,Zuletzt geändert (Abgabe)"
    rows = []
    for number, (given, family) in enumerate(PEOPLE):
        if number % 2:
            came = "-" if number == NOTHING else f'"Dienstag, {2 if number == ASKS else 1}. Dezember 2026, 12:00"'
            rows.append(f'Teilnehmer/in{4700 + number},{given} {family},{address(number)},,,"100,00",{came}')
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8-sig")
    return path


class Room:
    """What everybody hands in, and the points of it."""

    def __init__(self, folder: Path) -> None:
        self.made, self.folder = everything(LESSON), folder
        self.full = json.loads(self.made["scores.json"])["right_as_taught"]["score"]
        changes = list(habits().values())
        for number in range(40):
            notebook = self.right(number)
            if number >= HABITS_FROM:
                found = list(places(notebook).values())
                changes[(number - HABITS_FROM) * 2](notebook, found[number % len(found)])
            self.put(number, notebook)

    def right(self, number: int) -> dict[str, Any]:
        notebook: dict[str, Any] = json.loads(self.made["right_as_taught.ipynb"])
        for cell in notebook["cells"]:
            if "exercise" in cell["metadata"].get("tags", []):
                cell["source"] = [f"# by {PEOPLE[number][0]}, {number}\n", *cell["source"]]
        return notebook

    def put(self, number: int, notebook: dict[str, Any]) -> None:
        path = self.folder / file_of(number)
        if number == NOTHING:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        data = json.dumps(notebook).encode()
        if number == TORN:
            data = data[: len(data) // 2]
        if number == OTHER:
            data = everything("02")["right_as_taught.ipynb"]
        if number == TWICE:
            (self.folder / file_of(number, again=True)).write_bytes(data)
            data = self.made["untouched.ipynb"]
        path.write_bytes(data)


def test_the_class_has_two_of_one_name_and_nobody_else_twice() -> None:
    assert len(PEOPLE) == 40 and len(set(PEOPLE)) == 39 and len({file_of(each) for each in range(40)}) == 40


@pytest.mark.skipif(bool(bubblewrap.problem()), reason=f"no sandbox here: {bubblewrap.problem()}")
@pytest.mark.long
def test_a_class_of_40_goes_from_release_to_sheets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    book = f"sqlite:///{tmp_path / 'book.db'}"
    monkeypatch.setenv("LABKIT_GRADEBOOK", book)
    monkeypatch.setenv("COLUMNS", "80")
    assert "none is in it" in run("release", tmp_path / "class", "--lesson", LESSON, "--no-pages")
    room = Room(tmp_path / "in")
    sheets = {"canvas": canvas(tmp_path / "canvas.csv"), "moodle": moodle(tmp_path / "moodle.csv")}
    said = run("roster", "import", *sheets.values())
    assert "20 new" in said and "Test" not in said

    run("grade", tmp_path / "in", "--lesson", LESSON, "--out", tmp_path / "out", "--jobs", "2")
    page = (tmp_path / "out" / "class.html").read_text(encoding="utf-8")
    people = [f"{given} {family}</a>" for given, family in PEOPLE]
    assert not [each for number, each in enumerate(people) if each not in page and number != NOTHING]
    assert "assignsubmission" not in re.sub(r'href="[^"]*"', "", page)
    assert "This is the notebook of 02_ring_all_reduce, not of 01_" in page and "could not be graded" in page

    run("gradebook", "zone", "Europe/Berlin")
    said = run("gradebook", "record", tmp_path / "out", "--handed-in", sheets["moodle"])
    assert "40 new attempts" in said
    assert "1 of 40 have handed in nothing" in run("gradebook", "missing", "--lesson", LESSON)
    run("gradebook", "deadline", "2026-12-01T18:00", "--lesson", LESSON, "--percent-per-day", "10")
    said = run("gradebook", "deadline", "2026-12-09T18:00", "--lesson", LESSON, "--student", "Jan Schmidt", code=2)
    assert address(9) in said and address(29) in said  # nobody is guessed
    run("gradebook", "deadline", "2026-12-09T18:00", "--lesson", LESSON, "--student", address(9))

    before = marks(tmp_path)
    wrong = {}
    for number in range(40):
        wanted = {TORN: 0.0, OTHER: 0.0, NOTHING: None, ASKS: 0.9 * room.full}.get(number, room.full)
        if before.get(address(number)) != wanted:
            wrong[number] = before.get(address(number)), wanted
    assert not wrong

    mail = "Dear all,\n> " + request_line(tmp_path, ASKS)
    wrapped = "\n> ".join(mail[at : at + 60] for at in range(0, len(mail), 60))
    assert "request 1" in run("gradebook", "request", "-", stdin=f"{wrapped} I handed it in on time.")
    run("gradebook", "answer", "1", "You are right.", "--points", "2")
    after = marks(tmp_path)
    assert after[address(ASKS)] == pytest.approx(before[address(ASKS)] + 2)

    said = run("gradebook", "export", tmp_path / "c.csv", "--lesson", LESSON, "--canvas", sheets["canvas"],
               "--column", "01 Data", code=1)  # fmt: skip
    assert "c.csv: 20 of 40 grades" in said
    assert said.count("labkit:") <= 2  # a line for all of the other platform, not one for each of them
    run("gradebook", "export", tmp_path / "m.csv", "--lesson", LESSON, "--moodle", sheets["moodle"], code=1)
    filled = list(csv.DictReader(io.StringIO((tmp_path / "m.csv").read_text(encoding="utf-8-sig"))))
    assert sum(bool(row["Bewertung"]) for row in filled) == 19


def marks(folder: Path) -> dict[str, float]:
    """Return everybody's points, by the address that the roster has."""
    run("gradebook", "export", folder / "marks.csv", "--lesson", LESSON)
    rows = list(csv.DictReader(io.StringIO((folder / "marks.csv").read_text(encoding="utf-8-sig"))))
    with closing(Gradebook(f"sqlite:///{folder / 'book.db'}")) as opened:
        known = {row["Student"]: opened.known_by(row["Student"]) for row in rows}
    return {
        next(key for key in known[row["Student"]] if "@" in key): float(row["Score"])
        for row in rows if row["Handed in"] or float(row["Score"])
    }  # fmt: skip


def request_line(folder: Path, number: int) -> str:
    """Return the line that a student's page holds for asking again."""
    run("gradebook", "pages", folder / "pages", "--lesson", LESSON)
    name = " ".join(PEOPLE[number])
    texts = [html.unescape(each.read_text(encoding="utf-8")) for each in (folder / "pages").glob("*.html")]
    lines = [line for text in texts for line in re.findall(rf'labkit-regrade \S+ \S+ "{name}" \w+: ', text)]
    return str(lines[0])
