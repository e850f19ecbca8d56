"""The submissions of tests/submissions: each gets exactly the score it must get, exercise by exercise."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grading.conftest import SANDBOX
from labkit.grading.grade import grade
from tests.submissions.making import LESSONS, ROOT, lost

Feedback = Callable[..., dict[str, str]]


@pytest.fixture
def feedback(submissions: Callable[[str], Path], tmp_path: Path) -> Feedback:
    """Return a function that grades submissions, asserts each one's exact points, and returns their feedback pages."""

    def feedback(lesson: str, *names: str, points_only: bool = True) -> dict[str, str]:
        folder, out = submissions(lesson), tmp_path / "out"
        expected: dict[str, dict[str, Any]] = json.loads((folder / "scores.json").read_text())
        paths = [folder / f"{name}.ipynb" for name in names]
        jobs = 2 if len(names) > 3 else 1  # a worker loads torch once
        report = grade(paths, lesson, out, jobs=jobs, course=ROOT, points_only=points_only, sandbox=SANDBOX)
        assert {entry.name for entry in report} == set(names)
        for entry in report:
            wanted = expected[entry.name]
            points = {number: float(value) for number, value in wanted["exercises"].items()}
            assert (entry.name, entry.points) == (entry.name, points)
            assert (entry.name, entry.score, not entry.problem) == (entry.name, wanted["score"], wanted["readable"])
        return {name: (out / name / "feedback.html").read_text() for name in names if expected[name]["readable"]}

    return feedback


@pytest.mark.long
@pytest.mark.parametrize("lesson", LESSONS)
def test_every_submission_gets_its_score(lesson: str, feedback: Feedback) -> None:
    feedback(lesson, *lost(lesson))


@pytest.mark.long
def test_the_post_is_told_that_all_reduce_does_not_divide(feedback: Feedback) -> None:
    page = feedback("00", "right_in_another_style", "as_the_post_does")["as_the_post_does"]
    assert "all_reduce adds and does not divide" in page and "as they do to the post" in page


@pytest.mark.in_turn
def test_a_sample_of_rings_gets_its_scores(feedback: Feedback) -> None:
    pages = feedback("02", "reuses_a_buffer_in_flight", "blocking_sends_everywhere", "truncated")
    assert "isend" in pages["reuses_a_buffer_in_flight"]
    assert "Deadlock" in pages["blocking_sends_everywhere"]


@pytest.mark.long
def test_the_whole_command_on_submissions_that_end_their_kernel_or_loop_for_ever(feedback: Feedback) -> None:
    pages = feedback("02", "right_as_taught", "ends_the_process", "never_ends", points_only=False)
    assert re.search(r"Every cell ran|\d+ of \d+ cells ran without an error", pages["right_as_taught"])


@pytest.mark.long
def test_ddp_without_overlap_is_told_so(feedback: Feedback) -> None:
    pages = feedback("04", "all_after_backward")
    assert "All communication begins after backward has ended" in pages["all_after_backward"]


@pytest.mark.long
def test_servers_without_a_lock_lose_their_points_over_rpc_in_the_probe(feedback: Feedback) -> None:
    page = feedback("06", "no_lock_anywhere")["no_lock_anywhere"]
    assert "take self.lock" in page


@pytest.mark.long
def test_one_blocking_message_at_a_time_loses_the_executor(feedback: Feedback) -> None:
    page = feedback("08", "one_blocking_message_at_a_time")["one_blocking_message_at_a_time"]
    assert "Deadlock" in page
    assert "dist.isend returns at once" in page
