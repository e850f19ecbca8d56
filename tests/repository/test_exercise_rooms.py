"""Where exercises lie and what their modules may import, held against the files and their syntax trees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit.checks.kept_back import HIDDEN, WRONG
from labkit.grading.hidden_cases.rank_exercise import _SENT, imports_of
from labkit.grading.sandbox.view import runtime
from labkit.lessons.source import load

ROOT = Path(__file__).parents[2]
ROOMS = ROOT / "labkit" / "exercises"
SLUGS = sorted(path.parent for path in ROOMS.glob("*/*/exercise.py"))
LESSONS = sorted({room.parent.name for room in SLUGS})
IN_MEMORY = ("labkit.checks.case", "labkit.checks.exercise")
"""Modules of labkit.checks that start ranks, so that every rank has them."""


def _imports(path: Path) -> Iterator[str]:
    """Yield the dotted names in labkit that a file imports."""
    return (name for name in imports_of(path.read_text(encoding="utf-8")) if name.startswith("labkit."))


@pytest.mark.parametrize("lesson", LESSONS)
def test_no_lesson_imports_another_lessons_modules(lesson: str) -> None:
    other = tuple(f"labkit.exercises.{each}." for each in LESSONS if each != lesson)
    found = {
        (path.relative_to(ROOMS).as_posix(), name)
        for path in (ROOMS / lesson).rglob("*.py")
        for name in _imports(path)
        if f"{name}.".startswith(other)
    }
    assert not found


@pytest.mark.parametrize("lesson", LESSONS)
def test_what_exercises_share_is_in_named_modules(lesson: str) -> None:
    rooms = {room.name for room in SLUGS if room.parent.name == lesson}
    found = {
        (path.relative_to(ROOMS).as_posix(), name)
        for path in (ROOMS / lesson).rglob("*.py")
        for name in _imports(path)
        for room in rooms - {path.parent.name}
        if f"{name}.".startswith(f"labkit.exercises.{lesson}.{room}.")
    }
    assert not found


@pytest.mark.parametrize("room", SLUGS, ids=lambda room: room.name)
def test_a_driver_imports_no_exercise_and_only_what_a_rank_has(room: Path) -> None:
    seen: dict[Path, set[str]] = {}
    todo = [room / "driver.py"]
    while todo:
        path = todo.pop()
        seen[path] = set(_imports(path))
        travelling = (
            ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in seen[path] if name.startswith(_SENT)
        )
        todo += [each for each in travelling if each.is_file() and each not in seen]
    assert not [path for path in seen if path.name == "exercise.py"]
    names = {name for names in seen.values() for name in names if not name.startswith(_SENT)} - set(IN_MEMORY)
    files = {file for name in names if (file := ROOT.joinpath(*name.split(".")).with_suffix(".py")).is_file()}
    assert not [file for file in files if not any(there in (file, *file.parents) for there in runtime())]


@pytest.mark.parametrize("room", SLUGS, ids=lambda room: room.name)
def test_an_exercise_has_its_driver_its_hidden_cases_and_its_wrong_answers(room: Path) -> None:
    assert not {"driver.py", HIDDEN, WRONG} - {path.name for path in room.iterdir()}


def test_rooms_and_the_headers_in_the_lesson_sources_are_the_same_exercises() -> None:
    found = set()
    for source in sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py")):
        lesson = load(source)
        found |= {(lesson.slug, each.id) for each in lesson.exercises if each.is_code}
        asked = [each.id for each in lesson.exercises if each.kind in ("find", "why")]
        assert all((ROOMS / lesson.slug / slug / "question.json").is_file() for slug in asked)
    assert found == {(room.parent.name, room.name) for room in SLUGS}
