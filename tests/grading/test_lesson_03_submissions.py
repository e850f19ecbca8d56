"""The submissions to lesson 03: each gets exactly the score it must get, exercise by exercise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grading.conftest import SANDBOX
from labkit.grading.grade import grade
from labkit.grading.gradebook import ClassReport

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "submissions" / "03"


def assert_scores(report: ClassReport) -> None:
    expected: dict[str, dict[str, Any]] = json.loads((FOLDER / "scores.json").read_text())
    for entry in report:
        wanted = {number: float(points) for number, points in expected[entry.name]["exercises"].items()}
        assert (entry.name, entry.points) == (entry.name, wanted)
        assert (entry.name, entry.problem) == (entry.name, "")


@pytest.mark.long
def test_a_submission_without_overlap_loses_the_points_for_overlap_and_no_others(tmp_path: Path) -> None:
    paths = [FOLDER / "all_after_backward.ipynb"]
    report = grade(paths, "03", tmp_path, jobs=2, course=ROOT, points_only=True, sandbox=SANDBOX)
    assert_scores(report)
    page = (tmp_path / "all_after_backward" / "feedback.html").read_text()
    assert "All communication begins after backward has ended" in page


@pytest.mark.long
def test_every_submission_to_lesson_03_gets_its_score(tmp_path: Path) -> None:
    report = grade([FOLDER], "03", tmp_path, jobs=2, course=ROOT, points_only=True, sandbox=SANDBOX)
    assert {entry.name for entry in report} == {path.stem for path in FOLDER.glob("*.ipynb")}
    assert_scores(report)
