"""The submissions to lesson 00: each gets exactly the score it must get, exercise by exercise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grading.conftest import SANDBOX
from labkit.grading.grade import grade

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "submissions" / "00"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "scores.json").read_text())
SAMPLE = ("right_in_another_style", "as_the_post_does")


@pytest.mark.parametrize("names", [SAMPLE, pytest.param(tuple(EXPECTED), marks=pytest.mark.long)], ids=["some", "all"])
def test_each_submission_to_lesson_00_gets_its_score(names: tuple[str, ...], tmp_path: Path) -> None:
    paths = [FOLDER / f"{name}.ipynb" for name in names]
    report = grade(paths, "00", tmp_path, jobs=2, course=ROOT, points_only=True, sandbox=SANDBOX)
    got = {entry.name: entry.points for entry in report}
    assert got == {name: {k: float(v) for k, v in EXPECTED[name]["exercises"].items()} for name in names}
    page = (tmp_path / "as_the_post_does" / "feedback.html").read_text()
    assert "all_reduce adds and does not divide" in page and "as they do to the post" in page
