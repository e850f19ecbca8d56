"""The submissions to lesson 02: each gets exactly the score it must get, exercise by exercise."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from grading.conftest import SANDBOX
from labkit.grading.grade import grade
from labkit.grading.gradebook import ClassReport

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "submissions" / "02"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "scores.json").read_text())
SAMPLE = ("right_in_few_lines", "reuses_a_buffer_in_flight", "blocking_sends_everywhere", "truncated")


def assert_scores(report: ClassReport) -> None:
    for entry in report:
        expected = EXPECTED[entry.name]
        assert (entry.name, entry.points) == (entry.name, {k: float(v) for k, v in expected["exercises"].items()})
        assert (entry.name, entry.score, not entry.problem) == (entry.name, expected["score"], expected["readable"])


def test_a_sample_of_the_submissions_gets_its_scores(tmp_path: Path) -> None:
    paths = [FOLDER / f"{name}.ipynb" for name in SAMPLE]
    report = grade(paths, "02", tmp_path, jobs=2, course=ROOT, points_only=True, sandbox=SANDBOX)
    assert len(report) == len(SAMPLE)
    assert_scores(report)
    page = (tmp_path / "reuses_a_buffer_in_flight" / "feedback.html").read_text()
    assert "isend" in page
    assert "Deadlock" in (tmp_path / "blocking_sends_everywhere" / "feedback.html").read_text()


@pytest.mark.long
def test_every_submission_gets_its_score(tmp_path: Path) -> None:
    report = grade([FOLDER], "02", tmp_path, jobs=2, course=ROOT, points_only=True, sandbox=SANDBOX)
    assert {entry.name for entry in report} == set(EXPECTED)
    assert_scores(report)


@pytest.mark.long
def test_the_whole_command_on_submissions_that_end_their_kernel_or_loop_for_ever(tmp_path: Path) -> None:
    names = ("right_as_taught", "ends_the_process", "never_ends")
    report = grade([FOLDER / f"{name}.ipynb" for name in names], "02", tmp_path, jobs=1, course=ROOT, sandbox=SANDBOX)
    assert_scores(report)
    page = (tmp_path / "right_as_taught" / "feedback.html").read_text()
    assert re.search(r"Every cell ran|\d+ of \d+ cells ran without an error", page)
