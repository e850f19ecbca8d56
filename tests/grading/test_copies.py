"""Copies are found whatever their number, and nobody is told of who only wrote what the task asks for."""

from __future__ import annotations

import random
import resource
import time
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from grading.made_class import made_answers, renamed
from grading.small_lesson import STUBS, write_submission
from labkit.cli import app
from labkit.grading.book.commands import owners_in
from labkit.grading.book.file_names import owner
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.book.roster_files import Entry
from labkit.grading.course import Course
from labkit.grading.reports.copies import Copies, Work, copies
from labkit.grading.reports.copies_page import _lines, copies_page
from labkit.lessons.manifest import Exercise, Manifest


def class_of(count: int) -> dict[str, dict[str, str]]:
    return made_answers([f"student {number:03}" for number in range(count)])


def found_in(made: dict[str, dict[str, str]], **rest: object) -> Copies:
    handed_out = {exercise: source[:80] for exercise, source in next(iter(made.values())).items()}
    return copies([Work(name, cells) for name, cells in made.items()], handed_out, **rest)  # type: ignore[arg-type]


def edited(cells: dict[str, str], seed: int) -> dict[str, str]:
    """A copy in which every eighth line is another's own."""
    draw = random.Random(seed)
    other = next(iter(made_answers(["other"], seed=100 + seed).values()))
    return {
        exercise: "\n".join(
            draw.choice(other[exercise].splitlines()[2:-1]) if at > 1 and draw.random() < 0.125 else line
            for at, line in enumerate(source.splitlines())
        )
        for exercise, source in cells.items()
    }


@pytest.mark.in_turn
def test_nine_identical_of_twenty_four_are_one_case() -> None:
    made = class_of(24)
    nine = [f"student {number:03}" for number in range(3, 12)]
    for name in nine[1:]:
        made[name] = dict(made[nine[0]]) if name != nine[5] else renamed(made[nine[0]])
    [case] = found_in(made).cases
    assert (case.names, case.kind, case.share) == (tuple(nine), "the same answers", 1.0)
    assert len(case.exercises) == 6


def test_what_one_person_or_team_hands_in_twice_is_no_case(book_with_a_team: Path) -> None:
    made = class_of(3)
    names = ["kimk_12_100_lab", "kimk_12_101_lab-1", "linl_13_102_lab"]
    cells = next(iter(made.values()))
    works = [Work(name, cells, "a", owner=owner(name)) for name in names]
    [case] = copies(works, {}).cases
    assert case.names == tuple(names)
    assert not copies(works[:2], {}).cases
    teams = owners_in(f"sqlite:///{book_with_a_team}")(names)
    assert not copies([replace(each, owner=teams[each.name]) for each in works], {}).cases


@pytest.fixture
def book_with_a_team(tmp_path: Path) -> Path:
    book = Gradebook(f"sqlite:///{tmp_path / 'book.db'}")
    keys = {"Kim": frozenset({"canvas:12"}), "Lin": frozenset({"canvas:13"})}
    book.import_roster([Entry(name, each, team="red") for name, each in keys.items()])
    book.close()
    return tmp_path / "book.db"


@pytest.mark.in_turn
def test_nine_of_twenty_four_who_edited_one_text_are_told_in_pairs() -> None:
    made = class_of(24)
    nine = [f"student {number:03}" for number in range(3, 12)]
    for seed, name in enumerate(nine[1:]):
        made[name] = edited(made[nine[0]], seed)
    cases = found_in(made).cases
    assert {name for case in cases for name in case.names} == set(nine)
    assert all(case.kind == "much the same" and len(case.names) == 2 for case in cases)


def test_the_same_file_is_told_whatever_little_it_holds() -> None:
    made = class_of(3)
    works = [Work(name, {"1.1": cells["1.1"][:90]}, sha256="a") for name, cells in made.items()]
    [case] = copies(works, {"1.1": ""}).cases
    assert (case.kind, case.share, len(case.names)) == ("the same file", 1.0, 3)


def test_an_untouched_notebook_is_nobodys_copy() -> None:
    assert copies([Work("a", {}, "x"), Work("b", {}, "x")], {"1.1": "def f(): ..."}).cases == ()


@pytest.mark.in_turn
def test_short_answers_that_many_find_make_nobody_alike() -> None:
    made = class_of(24)
    for cells in made.values():
        cells["1.7"] = "def f(n):\n    return 2 * (n - 1) / n"
    assert found_in(made).cases == ()


def test_a_copy_of_an_earlier_years_work_is_told_and_earlier_copies_among_themselves_are_not() -> None:
    made = class_of(8)
    then = made_answers(["ada", "grace", "linus"], seed=5)
    then["grace"] = then["ada"]
    made["student 002"] = renamed(then["linus"])
    works = [Work(name, cells) for name, cells in made.items()]
    works += [Work(f"2025: {name}", cells, origin="2025") for name, cells in then.items()]
    [case] = copies(works, {}).cases
    assert case.names == ("student 002", "2025: linus")


@pytest.mark.in_turn
def test_cells_from_a_pack_make_nobody_alike_and_are_told_apart() -> None:
    made = class_of(8)
    pack = next(iter(made_answers(["pack"], seed=7).values()))
    for name in ("student 001", "student 002", "student 003"):
        made[name] |= {exercise: pack[exercise] for exercise in ("1.1", "1.2", "1.3", "1.4")}
    assert len(found_in(made).cases) == 1
    found = found_in(made, packs=[pack])
    assert found.cases == ()
    assert found.from_pack == dict.fromkeys(("student 001", "student 002", "student 003"), ("1.1", "1.2", "1.3", "1.4"))


def test_the_page_shows_both_sides_of_each_exercise_and_escapes_them() -> None:
    made = class_of(4)
    made["<b>copy"] = renamed(made["student 001"])
    made["<b>copy"]["1.1"] += "\n# <script>alert(1)</script>"
    works = [Work(name, cells) for name, cells in made.items()]
    found = copies(works, {})
    exercises = tuple(Exercise(f"1.{at}", "T", ("f",), 4, 1, 1, 1) for at in range(1, 7))
    page = copies_page(found, works, Manifest("01_made", "Made", "", exercises), {found.cases[0].id: "spoke to both"})
    text = page.decode()
    assert "<script>" not in text and "<b>copy" not in text and "Closed.</b> spoke to both" in text
    line = made["student 001"]["1.3"].splitlines()[5]
    assert line in unescape(text) and renamed(made["student 001"])["1.3"].splitlines()[5] in unescape(text)


@pytest.mark.browser
def test_names_as_long_as_a_platform_makes_them_are_not_cut_on_a_phone(tmp_path: Path, browser: Any) -> None:
    """Before a roster is imported, files go by their own names."""
    [cells] = made_answers(["one"]).values()
    works = [Work(f"{name}{'_02_ring_all_reduce' * 3}", cells) for name in ("lovelace", "hopper", "turing")]
    exercises = tuple(Exercise(each, "T", ("f",), 4, 1, 1, 1) for each in cells)
    (file := tmp_path / "copies.html").write_bytes(
        copies_page(copies(works, {}), works, Manifest("01_made", "Made", "", exercises), {})
    )
    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.goto(file.as_uri())
    assert page.locator(".sides b").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.close()


def test_a_line_with_other_names_is_marked_on_both_sides_as_one_that_is_the_same_to_the_letter() -> None:
    mine = "def f(x, n):\n    total = x + n  # add\n    y = 3\n    return total"
    theirs = "def f(x, n):\n    # so\n    acc = x + n\n    z.y(4)\n    return acc"
    assert [mark for _, mark in _lines(mine, theirs)] == ["same", "alike", "", "alike"]
    assert [mark for _, mark in _lines(theirs, mine)] == ["same", "", "alike", "", "alike"]


@pytest.mark.in_turn
def test_a_case_is_the_same_until_a_file_changes() -> None:
    made = class_of(6)
    made["copy"] = dict(made["student 001"])
    first, again = found_in(made).cases[0].id, found_in(dict(reversed(made.items()))).cases[0].id
    made["copy"]["1.6"] = "def f():\n    return 1"
    assert first == again != found_in(made).cases[0].id


@pytest.mark.long
def test_three_hundred_notebooks_take_less_than_a_minute_and_little_memory() -> None:
    made = class_of(300)
    made["copy"] = renamed(made["student 007"])
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    [case] = found_in(made).cases
    assert case.names == ("copy", "student 007")
    assert time.process_time() - started < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000, "kB"


@pytest.mark.in_turn
def test_copies_on_the_command_line_and_a_case_is_closed_with_a_note(course: Course, tmp_path: Path) -> None:
    long = {name: STUBS[name].split("raise")[0] + answer for name, answer in LONG.items()}
    for name in ("ada", "grace"):
        write_submission(tmp_path / "now" / f"{name}.ipynb", long)
    write_submission(tmp_path / "2025" / "zoe.ipynb", renamed(long))
    write_submission(tmp_path / "now" / "linus.ipynb", {"double": "def double(x):\n    return x * 2\n"})
    book = str(tmp_path / "book.db")

    (tmp_path / "now" / "alan.ipynb").write_text("{ torn")

    def labkit(*words: str) -> str:
        done = CliRunner().invoke(app, list(words), env={"LABKIT_GRADEBOOK": book})
        assert done.exit_code == 0, done.output
        return done.output

    page = tmp_path / "copies.html"
    words = ("copies", str(tmp_path / "now"), "--lesson", "90", "--out", str(page), "--course", str(course.root))
    said = labkit(*words, "--earlier", str(tmp_path / "2025"))
    case = said.split()[0]
    assert "the same answers, 100%: ada, grace, 2025: zoe" in said and "1 case" in said
    assert "not compared: alan: The file is not a notebook: it is cut off or damaged" in said
    labkit("gradebook", "close-case", case, "--note", "they worked together, as they may")
    assert "(closed: they worked together, as they may)" in labkit(*words, "--earlier", str(tmp_path / "2025"))
    assert "they worked together" in page.read_text() and "2025: zoe" in page.read_text()
    with pytest.raises(AssertionError, match="needs a note"):
        labkit("gradebook", "close-case", case, "--note", " ")
    with pytest.raises(
        AssertionError, match=rf"no case 3fa91c20 in this gradebook; it knows {case} \(ada, grace, 2025"
    ):
        labkit("gradebook", "close-case", "3fa91c20", "--note", "never printed")
    (roster := tmp_path / "roster.csv").write_text(
        "Name,Login\nAda Lovelace,ada\nGrace Hopper,grace\nAlan Turing,alan\n"
    )
    labkit("roster", "import", str(roster))
    said = labkit(*words, "--earlier", str(tmp_path / "2025"))  # people, not files
    assert "100%: Ada Lovelace, Grace Hopper, 2025: zoe" in said and "not compared: Alan Turing: " in said


LONG = {
    "double": "total = x\n    for step in range(1, 2):\n        total = total + x[:] * 1\n    return total\n" * 1,
    "shift": "".join(f"y = x.roll({at}) + {at} * x.sum()\n    " for at in range(9)) + "return y\n",
    "total": "".join(f"z = [x[{at}], x.view(-1)[{at}:]]\n    " for at in range(9)) + "return z\n",
}
