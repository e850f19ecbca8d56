"""A class of 300 in made-up but true form, from release to sheets, with the commands an instructor types.

The files are named as Canvas names them: resubmissions, late files, a team, copies, a pack's cells, a broken file, and
one of nobody in the roster.
"""

from __future__ import annotations

import csv
import io
import json
import re
import resource
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.grading.sandbox import bubblewrap
from labkit.lessons.catching_up import MARK, write_pack
from tests.submissions.making import everything

ROOT = Path(__file__).parents[2]
STUDENTS = 300
LESSON = "00_start_here"
COLUMN = "00 Start here (501)"
QUICK = ("right_as_taught", "right_in_another_style", "right_with_loops", "right_in_few_lines")


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == code, (arguments, done.output[-3000:], done.exception)
    return done.output


def made(text: bytes, mine: str, marked: bool = False) -> bytes:
    """A submission of somebody's own: a comment of theirs in its first exercise, or the line that a pack writes."""
    notebook = json.loads(text)
    cell = next(each for each in notebook["cells"] if "exercise" in each["metadata"].get("tags", []))
    cell["source"] = [MARK if marked else f"# {mine}\n", *cell["source"]]
    return json.dumps(notebook).encode()


class Made:
    """Who is in the class, and what each hands in."""

    def __init__(self, folder: Path, pack: dict[str, str]) -> None:
        self.files = everything("00")
        self.worth = json.loads(self.files["scores.json"])
        self.folder = folder
        self.names = [(f"Given{number:03}", f"Family{number:03}") for number in range(STUDENTS)]
        folder.mkdir(parents=True)
        for number in range(STUDENTS):
            self._hand_in(number, pack)
        (folder / "ghostly_99999_1_00_start_here.ipynb").write_bytes(self.files["right_as_taught.ipynb"])

    def _hand_in(self, number: int, pack: dict[str, str]) -> None:
        kind = QUICK[number % len(QUICK)]
        name, mine = self.file_name(number), made(self.files[f"{kind}.ipynb"], str(number))
        if number in (1, 2, 3, 4, 5):  # one file, five students
            self.put(name, made(self.files["right_with_loops.ipynb"], "one text"))
        elif number == 6:
            self.put(name, b'{"cells": [')
        elif number == 7 or number == 8:  # never handed in
            return
        elif number == 10:
            notebook = json.loads(self.files["right_as_taught.ipynb"])
            for cell in notebook["cells"]:
                slug = cell["metadata"].get("labkit", {}).get("exercise")
                if slug in pack and "exercise" in cell["metadata"].get("tags", []):
                    cell["source"] = MARK + pack[slug]
            self.put(name, json.dumps(notebook).encode())
        elif number % 25 == 11:  # a first try that fails, then one that is right and late
            self.put(name, made(self.files["untouched.ipynb"], str(number)))
            self.put(self.file_name(number, late=True, again=True), mine)
        else:
            self.put(self.file_name(number, late=number % 20 == 13), mine)

    def file_name(self, number: int, late: bool = False, again: bool = False) -> str:
        given, family = self.names[number]
        mark, turn = "_LATE" if late else "", "-1" if again else ""
        return f"{family}{given}{mark}_{20000 + number}_{70000 + number + 5000 * again}_00_start_here{turn}".lower()

    def put(self, name: str, data: bytes) -> None:
        (self.folder / f"{name.replace('_late_', '_LATE_')}.ipynb").write_bytes(data)

    def canvas(self, path: Path) -> Path:
        lines = [f"Student,ID,SIS User ID,SIS Login ID,Section,{COLUMN},Course total (502)"]
        lines.append('"    Points Possible",,,,,100,100')
        for number, (given, family) in enumerate(self.names):
            lines.append(f'"{family}, {given}",{20000 + number},s{number},{given.lower()}@example.org,A,,')
        path.write_text("\n".join(lines) + "\n")
        return path

    def teams(self, path: Path) -> Path:
        rows = [f"{self.names[each][0]} {self.names[each][1]},{self.names[each][0].lower()}@example.org,red"
                for each in (8, 9)]  # fmt: skip
        path.write_text("\n".join(["Name,Email,Team", *rows]) + "\n")
        return path

    def times(self, path: Path) -> Path:
        """What Canvas's interface says: late by a day for who handed in late."""
        rows = []
        for number in range(STUDENTS):
            late = number % 20 == 13 or number % 25 == 11
            if number not in (7, 8):
                rows.append({"user_id": 20000 + number, "submitted_at": f"2026-12-0{2 if late else 1}T12:00:00Z"})
        path.write_text(json.dumps(rows))
        return path


@pytest.mark.skipif(bool(bubblewrap.problem()), reason=f"no sandbox here: {bubblewrap.problem()}")
@pytest.mark.long
def test_a_class_of_300_goes_from_release_to_sheets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: pytest.RecordProperty
) -> None:
    begun = time.monotonic()
    monkeypatch.chdir(ROOT)
    book = f"sqlite:///{tmp_path / 'book.db'}"
    monkeypatch.setenv("LABKIT_GRADEBOOK", book)
    said = run("release", tmp_path / "class", "--lesson", "00", "--no-pages")
    assert "none is in it" in said and (tmp_path / "class" / "notebooks" / f"{LESSON}.ipynb").is_file()
    pack = write_pack("00", tmp_path / "00.pack", ROOT, earns=50)
    room = Made(tmp_path / "in", pack.answers)
    canvas = room.canvas(tmp_path / "canvas.csv")
    assert "300 new" in run("roster", "import", canvas)
    assert "0 new" in run("roster", "import", room.teams(tmp_path / "teams.csv"))

    run("grade", tmp_path / "in", "--lesson", "00", "--out", tmp_path / "out", "--points-only", "--jobs", "2",
        "--pack", tmp_path / "00.pack")  # fmt: skip
    graded = list((tmp_path / "out").glob("*/result.json"))
    assert len(graded) == len(list(room.folder.iterdir()))
    page = (tmp_path / "out" / "class.html").read_text()
    assert "Who used a pack" in page and "the same answers" in page

    said = run("gradebook", "record", tmp_path / "out", "--handed-in", room.times(tmp_path / "times.json"), code=1)
    assert "ghostly_99999_1_00_start_here" in said  # of nobody: the exit code says that somebody must look
    missing = run("gradebook", "missing", "--lesson", "00")
    assert "Given007 Family007" in missing and "1 of 300 have handed in nothing" in missing
    due = ("gradebook", "deadline", "2026-12-01T18:00+00:00", "--lesson", "00", "--percent-per-day", "10")
    assert "10 % off" in run(*due, "--preview")
    run(*due)
    alike = run("copies", tmp_path / "in", "--lesson", "00", "--out", tmp_path / "copies.html")
    assert re.search(r"the same answers, 100%: .*Given001 Family001.*Given005 Family005", alike), alike
    assert run("gradebook", "pages", tmp_path / "pages", "--lesson", "00", "--canvas", tmp_path / "pages.zip")
    run("gradebook", "page", tmp_path / "class.html", "--lesson", "00")
    run("gradebook", "export", tmp_path / "marks.csv", "--lesson", "00")

    full = room.worth["right_as_taught"]["score"]
    marks = {row["Student"]: row for row in csv.DictReader(io.StringIO((tmp_path / "marks.csv").read_text()))}
    assert len(marks) == STUDENTS
    wrong = []
    for number, (given, family) in enumerate(room.names):
        late = number % 20 == 13 or (number % 25 == 11 and number > 10)
        wanted = full * (0.9 if late and number > 10 else 1.0)
        row = marks[f"{given} {family}"]
        if number in (6, 7):
            wanted = 0.0
        elif number == 10:  # the pack's cells earn half
            assert 0 < float(row["Score"]) < full
            continue
        if abs(float(row["Score"]) - wanted) > 0.01:
            wrong.append((number, row["Score"], wanted))
    assert not wrong, wrong[:10]

    run("gradebook", "export", tmp_path / "back.csv", "--lesson", "00", "--canvas", canvas, "--column", "00 Start")
    run("gradebook", "course", tmp_path / "total.csv", "--lesson", "00", "--canvas", canvas, "--column", "Course total")
    filled = [list(csv.DictReader(io.StringIO((tmp_path / name).read_text()))) for name in ("back.csv", "total.csv")]
    assert (
        sum(bool(row[COLUMN]) for row in filled[0]) == STUDENTS - 1 + 1
    )  # all but one, and the row of points possible
    assert sum(row["Course total (502)"] == "100" for row in filled[1]) > 200
    assert len(list((tmp_path / "pages").glob("*.html"))) == STUDENTS
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1e6
    record_property("seconds", round(time.monotonic() - begun))
    record_property("peak_gb", round(peak, 2))
    print(f"{len(graded)} files: {time.monotonic() - begun:.0f} s, at most {peak:.2f} GB in one process")
    assert peak < 2
