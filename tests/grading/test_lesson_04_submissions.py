"""The submissions to lesson 04: each gets exactly the score it must get, exercise by exercise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grading.conftest import SANDBOX
from labkit.grading.grade import grade
from labkit.grading.gradebook import ClassReport

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "submissions" / "04"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "scores.json").read_text())


def assert_scores(report: ClassReport) -> None:
    for entry in report:
        expected = EXPECTED[entry.name]
        assert (entry.name, entry.points) == (entry.name, {k: float(v) for k, v in expected["exercises"].items()})
        assert (entry.name, entry.score, not entry.problem) == (entry.name, expected["score"], expected["readable"])


def test_servers_without_a_lock_lose_their_points_over_rpc_in_the_probe(tmp_path: Path) -> None:
    name = "no_lock_anywhere"
    report = grade([FOLDER / f"{name}.ipynb"], "04", tmp_path, jobs=1, course=ROOT, points_only=True, sandbox=SANDBOX)
    assert_scores(report)
    page = (tmp_path / name / "feedback.html").read_text()
    assert "at the same time" in page
    assert "take self.lock" in page


@pytest.mark.long
def test_every_submission_gets_its_score(tmp_path: Path) -> None:
    report = grade([FOLDER], "04", tmp_path, jobs=2, course=ROOT, points_only=True, sandbox=SANDBOX)
    assert {entry.name for entry in report} == set(EXPECTED)
    assert_scores(report)
