"""The submissions of every lesson can be made from its answers, and each says what it must get."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from labkit.lessons.source import load
from tests.submissions.making import HERE, LESSONS, ROOT, graded_points, lesson_source, lost


@pytest.fixture(params=LESSONS)
def number(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(submissions: Callable[[str], Path], number: str) -> Path:
    return submissions(number)


def test_every_lesson_has_submissions() -> None:
    assert {path.name[:2] for path in (ROOT / "solutions").glob("[0-9][0-9]_*.py")} == set(LESSONS)


@pytest.mark.in_turn
def test_every_submission_has_a_score_and_every_score_a_submission(number: str, folder: Path) -> None:
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    assert set(scores) == set(lost(number)) == {path.stem for path in folder.glob("*.ipynb")}
    readable = {name for name, exercises in lost(number).items() if exercises is not None}
    assert {path.stem for path in (HERE / f"answers_{number}").glob("*.py")} == readable


@pytest.mark.in_turn
def test_scores_add_up_to_the_points_of_the_lesson(number: str, folder: Path) -> None:
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    points = graded_points(load(lesson_source(number)))
    assert scores["right_as_taught"] == {"score": sum(points.values()), "readable": True, "exercises": points}
    for entry in scores.values():
        assert entry["score"] == sum(entry["exercises"].values())


@pytest.mark.in_turn
def test_what_can_be_read_is_a_valid_notebook(number: str, folder: Path) -> None:
    for name, exercises in lost(number).items():
        if exercises is not None:
            notebook = nbformat.read(folder / f"{name}.ipynb", as_version=4)
            nbformat.validate(notebook)
