"""What was handed in, found and read as data."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from grading.small_lesson import RIGHT, notebook, write_submission
from labkit.errors import ConfigError
from labkit.grading.submission import Submission, find_submissions, read_submission, safe_name, submission_hash


def names(found: list[Submission]) -> list[str]:
    return [submission.name for submission in found]


def test_files_and_folders_are_named_without_their_ending(tmp_path: Path) -> None:
    write_submission(tmp_path / "alice.ipynb", RIGHT)
    write_submission(tmp_path / "bob" / "90_small.ipynb", RIGHT)
    write_submission(tmp_path / "carol" / "deep" / "final version.ipynb", RIGHT)
    write_submission(tmp_path / "carol" / ".ipynb_checkpoints" / "final version-checkpoint.ipynb", RIGHT)
    (tmp_path / "scores.json").write_text("{}")
    found, notes = find_submissions([tmp_path], "90_small")
    assert names(found) == ["alice", "bob", "carol"]
    assert not any(submission.problem for submission in found)
    assert notes == [f"{tmp_path}: skipped, because they are neither notebooks nor folders: scores.json"]


def test_folders_named_one_by_one_keep_their_names(tmp_path: Path) -> None:
    for student in ("ann", "ben"):
        write_submission(tmp_path / student / "90_small.ipynb", RIGHT)
    found, _ = find_submissions([tmp_path / "ann", tmp_path / "ben"], "90_small")
    assert names(found) == ["ann", "ben"]


def test_a_name_that_is_made_for_one_file_takes_no_other_files_name(tmp_path: Path) -> None:
    for name in ("Ada", "ada", "ada-2", "eve ", "eve"):
        (tmp_path / f"{name}.ipynb").write_text("{}")
    found, notes = find_submissions([tmp_path], "02_ring_all_reduce")
    whose = {each.path.stem: each.name for each in found}
    assert whose == {"Ada": "Ada", "ada": "ada-3", "ada-2": "ada-2", "eve": "eve", "eve ": "eve-2"}
    assert len(notes) == 2


def test_names_that_collide_are_told_apart_and_told(tmp_path: Path) -> None:
    write_submission(tmp_path / "a" / "alice.ipynb", RIGHT)
    write_submission(tmp_path / "b" / "Alice.ipynb", RIGHT)
    found, notes = find_submissions([tmp_path / "a", tmp_path / "b"], "90_small")
    assert names(found) == ["Alice", "alice-2"]
    assert "reported as 'alice-2'" in notes[0]


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../etc/passwd", "_.._etc_passwd"),
        ("=cmd|'/c calc'!A0", "_cmd___c calc__A0"),
        ("Zoë Müller 李雷", "Zoë Müller 李雷"),
        ("a\x00b\nc\u202ed", "a_b_c_d"),
        ("...", "submission"),
        ("-rf", "rf"),
        ("x" * 300, "x" * 80),
    ],
)
def test_names_are_safe_as_folders_and_in_a_table(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_several_notebooks_in_a_folder_are_a_problem_unless_one_bears_the_lessons_name(tmp_path: Path) -> None:
    for file in ("one.ipynb", "two.ipynb"):
        write_submission(tmp_path / "ann" / file, RIGHT)
        write_submission(tmp_path / "ben" / file, RIGHT)
    write_submission(tmp_path / "ben" / "90_small.ipynb", RIGHT)
    found, _ = find_submissions([tmp_path], "90_small")
    assert "There are 2 notebooks in what was handed in (one.ipynb, two.ipynb); hand in one." in found[0].problem
    assert found[1].path.name == "90_small.ipynb" and not found[1].problem


def test_a_notebook_is_known_whatever_a_browser_made_of_its_ending(tmp_path: Path) -> None:
    for number, name in enumerate(("02_ring (1).ipynb", "02_ring.ipynb.txt", "02_ring.ipynb.json", "02_RING.IPYNB")):
        (tmp_path / f"student-{number}").mkdir()
        (tmp_path / f"student-{number}" / name).write_text("{}")
    (tmp_path / "student-1" / "02_ring.ipynb").write_text("{}")  # beside the text of the browser
    found, notes = find_submissions([tmp_path], "02_ring")
    assert [(each.name, each.problem) for each in found] == [(f"student-{number}", "") for number in range(4)]
    assert found[1].path.name == "02_ring.ipynb" and notes == []
    (flat,), _ = find_submissions([tmp_path / "student-2" / "02_ring.ipynb.json"], "another")
    assert flat.name == "02_ring"


def test_what_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no"):
        find_submissions([tmp_path / "nobody"], "90_small")
    with pytest.raises(ConfigError, match="no submission in"):
        find_submissions([tmp_path], "90_small")


def test_what_moodle_and_gradescope_put_beside_the_files_is_nobodys(tmp_path: Path) -> None:
    moodle, gradescope = tmp_path / "moodle", tmp_path / "gradescope" / "assignment_5_export"
    write_submission(moodle / "Zoë_7_assignsubmission_file_" / "x.ipynb", RIGHT)
    text = moodle / "Zoë_7_assignsubmission_onlinetext_" / "onlinetext.html"
    text.parent.mkdir()
    text.write_text("<p>hello</p>")
    found, notes = find_submissions([moodle], "90_small")
    assert names(found) == ["Zoë_7_assignsubmission_file_"] and "text that Moodle keeps" in notes[0]
    write_submission(gradescope / "submission_301" / "90_small.ipynb", RIGHT)
    (gradescope / "submission_metadata.yml").write_text("submission_301:\n")
    assert names(find_submissions([gradescope.parent], "90_small")[0]) == ["submission_301"]
    (tmp_path / "submissions.zip").write_bytes(b"PK")
    with pytest.raises(ConfigError, match="is a zip; unpack it"):
        find_submissions([tmp_path / "submissions.zip"], "90_small")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    secret = write_submission(tmp_path / "elsewhere" / "secret.ipynb", RIGHT)
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "mallory.ipynb").symlink_to(secret)
    (tmp_path / "class" / "trudy").symlink_to(secret.parent)
    found, _ = find_submissions([tmp_path / "class"], "90_small")
    assert all("This is a link" in read_submission(submission).problem for submission in found)


@pytest.mark.parametrize("named", ["class", "class/ada", "class/ada/02.ipynb", "../work/class/ada/02.ipynb"])
def test_a_link_on_the_way_to_what_is_named_is_refused_with_where_it_leads(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it stands: in place of the notebook, of its folder, or of one above."""
    answers = write_submission(tmp_path / "course" / "solutions" / "02.ipynb", RIGHT)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    link = Path(named)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(answers if link.suffix else answers.parent)
    for asked in (link, link.absolute(), *([] if link.suffix else [link / "02.ipynb"])):
        with pytest.raises(ConfigError, match=f"{link.name}.* is a link to {tmp_path}/course/solutions.*put a plain"):
            find_submissions([asked], "02")


def test_a_link_of_the_machines_own_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a home folder lies on another disk."""
    write_submission(tmp_path / "disk" / "me" / "class" / "ada.ipynb", RIGHT)
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "me"))
    (found,), _ = find_submissions([tmp_path / "home" / "me" / "class"], "02")
    assert read_submission(found).cells
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="home is a link"):
        find_submissions([tmp_path / "home" / "me" / "class"], "02")


def test_a_link_that_takes_a_files_place_after_it_was_found_is_not_followed(tmp_path: Path) -> None:
    secret = write_submission(tmp_path / "elsewhere" / "secret.ipynb", RIGHT)
    handed_in = write_submission(tmp_path / "class" / "mallory.ipynb", RIGHT)
    (found,), _ = find_submissions([tmp_path / "class"], "90_small")
    assert submission_hash(found.path) == submission_hash(secret)
    handed_in.unlink()
    handed_in.symlink_to(secret)
    assert "could not be read" in read_submission(found).problem
    assert submission_hash(found.path) == "no file"


BAD_FILES = {
    "empty": (b"", "The file is empty"),
    "white": (b"  \n", "The file is empty"),
    "cut off": (json.dumps(notebook()).encode()[:500], "cut off or damaged"),
    "binary": (bytes(range(256)), "not text"),
    "a list": (b"[1, 2]", "JSON, but not a notebook"),
    "no cells": (b'{"metadata": {}}', "no cells"),
    "zero cells": (b'{"cells": []}', "has no cells"),
    "cells of numbers": (b'{"cells": [1, null, {"cell_type": 3}]}', "has no cells"),
    "too deep for the parser": (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
    "too deep for us": (b'{"cells": ' + b"[" * 200 + b"]" * 200 + b"}", "nested too deeply"),
    "huge number": (b'{"cells": ' + b"9" * 10_000 + b"}", "cut off or damaged"),
    "too many cells": (json.dumps({"cells": [{}] * 3000}).encode(), "3000 cells; the limit is 2000"),
}


@pytest.mark.in_turn
@pytest.mark.parametrize("name", BAD_FILES)
def test_each_bad_file_has_its_own_sentence(name: str, tmp_path: Path) -> None:
    data, words = BAD_FILES[name]
    path = tmp_path / "x.ipynb"
    path.write_bytes(data)
    assert words in read_submission(Submission("x", path)).problem


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.ipynb"
    with open(path, "wb") as file:
        file.truncate(500 << 20)
    assert "The notebook is 524 MB large" in read_submission(Submission("x", path)).problem


def test_a_damaged_notebook_gives_what_can_be_read(tmp_path: Path) -> None:
    content = notebook(RIGHT)
    content["cells"].insert(0, "not a cell")
    content["cells"][3]["outputs"] = "nonsense"
    content["cells"][3]["metadata"]["tags"] = {"not": "a list"}
    content["nbformat"] = "four"
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps(content))
    read = read_submission(Submission("x", path))
    assert not read.problem and read.notes == ("1 cell of the file could not be read and was left out.",)
    assert len([cell for cell in read.cells if cell.id.startswith("exercise-")]) == 3


def test_an_old_notebook_with_worksheets_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.ipynb"
    cell = {"cell_type": "code", "input": ["a = 1\n", "b = 2"], "metadata": {}}
    path.write_text(json.dumps({"nbformat": 3, "worksheets": [{"cells": [cell]}]}))
    read = read_submission(Submission("x", path))
    assert read.cells[0].source == "a = 1\nb = 2" and "old format" in read.notes[0]


def test_lone_surrogates_do_not_travel_on(tmp_path: Path) -> None:
    path = tmp_path / "x.ipynb"
    path.write_text('{"cells": [{"cell_type": "code", "source": "x = \'\\ud800\'"}]}')
    assert read_submission(Submission("x", path)).cells[0].source == "x = '?'"


def test_any_file_name_is_safe_and_shown_escaped_and_one_of_ours_is_taken_by_nobody(tmp_path: Path) -> None:
    odd = [
        b"gradebook.csv",
        b"CLASS.html",
        b"con",
        b"\x1b[31mred\nline",
        b"\xff\xfe",
        b"x",
        b"X",
        "\U00020000".encode() * 60,
    ]
    for name in odd:
        (tmp_path / os.fsdecode(name + b".ipynb")).write_text("{}")
    (tmp_path / "x").mkdir()
    (tmp_path / os.fsdecode(b"\x1b[2J\xffclear.zip")).touch()
    found, notes = find_submissions([tmp_path], "90_small")
    names = [each.name for each in found]
    assert len({name.casefold() for name in names}) == len(odd) + 1
    assert {"gradebook.csv_", "CLASS.html_", "con_"} <= set(names)
    assert all(len(name.encode()) < 200 and name.isprintable() for name in names)
    assert any(r"\x1b[2J\udcffclear.zip" in note for note in notes)
    for note in notes:
        assert note.isprintable() and note.encode()


def test_a_folder_that_becomes_a_link_after_it_was_found_is_not_followed(tmp_path: Path) -> None:
    text = '{"cells": [{"cell_type": "code", "source": "x = 1"}]}'
    for name in ("in/ada", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "02.ipynb").write_text(text)
    (found,), _ = find_submissions([tmp_path / "in"], "02")
    assert read_submission(found).cells and found.name == "ada"
    (tmp_path / "in" / "ada").rename(tmp_path / "in" / "was-ada")
    (tmp_path / "in" / "ada").symlink_to(tmp_path / "elsewhere")
    assert "has become a link" in read_submission(found).problem
    assert submission_hash(found.path) == "no file"
