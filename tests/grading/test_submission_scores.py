"""The submissions of tests/submissions: each gets exactly the score it must get, exercise by exercise."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from grading.conftest import SANDBOX
from labkit.grading.grade import grade

ROOT = Path(__file__).parents[2]
SUBMISSIONS = ROOT / "tests" / "submissions"
LESSONS = sorted(path.parent.name for path in SUBMISSIONS.glob("*/scores.json"))


def feedback(lesson: str, names: tuple[str, ...], out: Path, points_only: bool = True) -> dict[str, str]:
    """Grade these submissions, assert each one's exact points, and return their feedback pages."""
    folder = SUBMISSIONS / lesson
    expected: dict[str, dict[str, Any]] = json.loads((folder / "scores.json").read_text())
    paths = [folder / f"{name}.ipynb" for name in names]
    report = grade(paths, lesson, out, jobs=2, course=ROOT, points_only=points_only, sandbox=SANDBOX)
    assert {entry.name for entry in report} == set(names)
    for entry in report:
        wanted = expected[entry.name]
        points = {number: float(value) for number, value in wanted["exercises"].items()}
        assert (entry.name, entry.points) == (entry.name, points)
        assert (entry.name, entry.score, not entry.problem) == (entry.name, wanted["score"], wanted["readable"])
    return {name: (out / name / "feedback.html").read_text() for name in names if expected[name]["readable"]}


@pytest.mark.long
@pytest.mark.parametrize("lesson", LESSONS)
def test_every_submission_gets_its_score(lesson: str, tmp_path: Path) -> None:
    feedback(lesson, tuple(json.loads((SUBMISSIONS / lesson / "scores.json").read_text())), tmp_path)


def test_the_post_is_told_that_all_reduce_does_not_divide(tmp_path: Path) -> None:
    page = feedback("00", ("right_in_another_style", "as_the_post_does"), tmp_path)["as_the_post_does"]
    assert "all_reduce adds and does not divide" in page and "as they do to the post" in page


def test_a_sample_of_rings_gets_its_scores(tmp_path: Path) -> None:
    names = ("reuses_a_buffer_in_flight", "blocking_sends_everywhere", "truncated")
    pages = feedback("02", names, tmp_path)
    assert "isend" in pages["reuses_a_buffer_in_flight"]
    assert "Deadlock" in pages["blocking_sends_everywhere"]


@pytest.mark.long
def test_the_whole_command_on_submissions_that_end_their_kernel_or_loop_for_ever(tmp_path: Path) -> None:
    pages = feedback("02", ("right_as_taught", "ends_the_process", "never_ends"), tmp_path, points_only=False)
    assert re.search(r"Every cell ran|\d+ of \d+ cells ran without an error", pages["right_as_taught"])


@pytest.mark.long
def test_ddp_without_overlap_is_told_so(tmp_path: Path) -> None:
    pages = feedback("03", ("all_after_backward",), tmp_path)
    assert "All communication begins after backward has ended" in pages["all_after_backward"]


@pytest.mark.long
def test_servers_without_a_lock_lose_their_points_over_rpc_in_the_probe(tmp_path: Path) -> None:
    page = feedback("04", ("no_lock_anywhere",), tmp_path)["no_lock_anywhere"]
    assert "take self.lock" in page


@pytest.mark.long
def test_one_blocking_message_at_a_time_loses_the_executor_and_the_mesh(tmp_path: Path) -> None:
    page = feedback("05", ("one_blocking_message_at_a_time",), tmp_path)["one_blocking_message_at_a_time"]
    assert "Deadlock" in page
    assert "post the messages of a step together" in page
