"""Nothing is written through a link: a student may have put it where reports, marks or packs go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grading.small_lesson import RIGHT, write_submission
from labkit.cli import app
from labkit.errors import ConfigError
from labkit.grading.course import Course
from labkit.grading.grade import grade
from labkit.grading.reports.student_report import write_whole

ROOT = Path(__file__).parents[2]


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "command",
    [
        "grade class --lesson 90 --course COURSE --out OUT",
        "copies class --lesson 90 --course COURSE --out OUT",
        "grade --lesson 90 --course COURSE --gradescope OUT.zip",
        "pack 02 --course ROOT --out OUT",
        "export-nbgrader 02 --course ROOT --out OUT",
        "release OUT --course ROOT --no-pages",
    ],
    ids=lambda command: " ".join(command.split()[:2]),
)
@pytest.mark.parametrize("place", ["in its place", "above it"])
def test_an_output_that_is_or_lies_below_a_link_is_refused_and_nothing_is_written(
    command: str, place: str, course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_submission(tmp_path / "class" / "ada.ipynb", RIGHT)
    (tmp_path / "solutions").mkdir()
    monkeypatch.chdir(tmp_path)
    out = "grades.zip" if ".zip" in command else "grades"
    Path(out if place == "in its place" else "below").symlink_to(tmp_path / "solutions")
    asked = out if place == "in its place" else f"below/{out}"
    words = command.replace("OUT.zip", asked).replace("OUT", asked).replace("COURSE", str(course.root))
    words = words.replace("ROOT", str(ROOT))
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 2
    assert f"is a link to {tmp_path}/solutions" in done.output and "put a plain folder in its place" in done.output
    assert not list((tmp_path / "solutions").iterdir())


def test_a_report_a_mark_or_a_page_is_written_through_no_link_that_stands_where_it_is_begun(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("theirs")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / f".a.html.{os.getpid()}.part").symlink_to(victim)
    write_whole(tmp_path / "out" / "a.html", b"ours")
    assert victim.read_text() == "theirs" and (tmp_path / "out" / "a.html").read_text() == "ours"
    (tmp_path / "out" / "b.html").symlink_to(victim)
    with pytest.raises(ConfigError, match=r"b\.html is a link"):
        write_whole(tmp_path / "out" / "b.html", b"ours")


@pytest.mark.parametrize("out", ["class", ".", "class/ada"])
def test_no_report_is_written_where_one_may_have_been_handed_in(
    out: str, course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a report that is there and bears the right hashes a run is not repeated; students know these hashes."""
    write_submission(tmp_path / "class" / "ada" / "90_small.ipynb", RIGHT)
    (tmp_path / "class" / "ada" / "result.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="a student could have put a report there; name a folder with --out"):
        grade([Path("class")], "90", out, course=course.root, key=tmp_path / "key", sandbox="none")
    assert sorted(path.name for path in (tmp_path / "class").rglob("*")) == ["90_small.ipynb", "ada", "result.json"]
