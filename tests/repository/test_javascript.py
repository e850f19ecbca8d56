"""JavaScript that a person can read, and what pages are sent of it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from labkit.lessons import bundles
from labkit.lessons.executed import _UNSTEADY

ROOT = Path(__file__).parents[2]
WRITTEN = [
    *(
        path
        for path in (ROOT / bundles.SOURCES).rglob("*.*")
        if "node_modules" not in path.parts and path.name != "package-lock.json"
    ),
    *(ROOT / "tests" / "widgets" / "in_page").glob("*.js"),
    ROOT / "labkit" / "lessons" / "played.js",
    ROOT / "labkit" / "lessons" / "slides.js",
    *sorted((ROOT / "labkit" / "lessons").glob("slide_*.js")),
]
SENT = sorted((ROOT / bundles.WRITTEN).glob("*.js"))
MOST_COLUMNS, MOST_LINES = 120, 300
BUDGET_BYTES = 187_400


def test_no_line_is_longer_than_120_columns() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{number}": len(line)
        for path in WRITTEN
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > MOST_COLUMNS
    }
    assert not long


def test_no_module_is_long() -> None:
    modules = [path for path in WRITTEN if path.suffix == ".js"]
    lines = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n") for path in modules}
    assert not {name: count for name, count in lines.items() if count > MOST_LINES and "claims" not in name}


def test_what_is_sent_is_at_most_187_400_bytes() -> None:
    assert sum(path.stat().st_size for path in SENT) <= BUDGET_BYTES


@pytest.mark.parametrize("path", SENT, ids=lambda path: path.name)
def test_a_program_asks_no_address_needs_no_other_file_and_ends_no_script(path: Path) -> None:
    program = path.read_text(encoding="utf-8")
    asks = re.sub(r'"http://www\.w3\.org/2000/svg"|<svg xmlns="http://www\.w3\.org/2000/svg"', "", program)
    assert not re.search(r"https?:|\bfetch\(|XMLHttpRequest|WebSocket|^\s*(import|export)\b", asks, re.MULTILINE)
    assert "</script" not in program and "<!--" not in program
    assert not [what for what, pattern in _UNSTEADY.items() if pattern.search(program)]  # as a lesson's output


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A copy of what programs are made from, and of them."""
    for folder in (bundles.SOURCES, bundles.WRITTEN):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("node_modules"))
    return tmp_path


def test_programs_are_what_their_sources_make(course: Path) -> None:
    assert [*bundles.drift(ROOT)] == [*bundles.drift(course)] == []


def test_a_program_that_is_older_than_its_sources_edited_or_of_no_source_is_named(course: Path) -> None:
    source, program = course / bundles.SOURCES / "ring" / "steps.js", course / bundles.WRITTEN / "timeline.js"
    source.write_text(source.read_text() + "// more\n")
    program.write_text(program.read_text().replace("Critical path", "critical path"))
    (course / bundles.WRITTEN / "figure.css").unlink()
    (course / bundles.WRITTEN / "old.js").write_text("")
    told = {Path(each.file).name: each.why for each in bundles.drift(course)}
    assert told == {
        "figure.css": "is missing",
        "old.js": f"no file of this name is in {bundles.SOURCES.as_posix()}",
        "ring_player.js": "is not what its sources make",
        "timeline.js": "was edited by hand",
    }


def test_where_there_is_no_node_building_says_so_and_writes_nothing(
    course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (course / bundles.SOURCES / "ring_player.js").write_text("")
    monkeypatch.setenv("PATH", "")
    said: list[str] = []
    assert bundles.build(course, said.append) == []
    assert said == ["node is not on this machine: labkit/widgets/static stays as it is, older than its sources."]


def test_the_lock_names_no_registry() -> None:
    lock = json.loads((ROOT / bundles.SOURCES / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
    wanted = json.loads((ROOT / bundles.SOURCES / "package.json").read_text())["devDependencies"]["esbuild"]
    assert lock["packages"]["node_modules/esbuild"]["version"] == wanted
