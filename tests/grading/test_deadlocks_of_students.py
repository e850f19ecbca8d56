"""Whatever keeps a student's ranks from going on is told from what the relay saw, long before a case's time is up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from grading.conftest import SANDBOX, Probe
from grading.small_lesson import write_submission
from labkit.grading.course import Course
from labkit.grading.grade import grade
from labkit.launch.reports import IN_NO_CALL
from tests.launch.kinds_of_deadlock import KINDS, OFTEN, without_places

HEAD = "def total(x):\n    rank, n = dist.get_rank(), dist.get_world_size()\n    "


RAISES = {
    "different collectives": (
        "dist.all_reduce(x) if rank else dist.broadcast(x, 0)",
        r"Rank \d called (broadcast|all_reduce) while rank \d called (broadcast|all_reduce): all must call the same.",
    ),
    "another order of collectives": (
        "calls = [lambda: dist.all_reduce(x), lambda: dist.broadcast(x[:2], 0)]\n"
        "    for call in calls if rank else calls[::-1]: call()",
        r"Rank \d called (broadcast|all_reduce) while rank \d called (broadcast|all_reduce): all must call the same.",
    ),
    "a broadcast from different ranks": ("dist.broadcast(x, rank)", r"Ranks \d and \d each gave to broadcast."),
    "a rank that dies": (
        "import os\n    if rank == 1: os._exit(3)\n    dist.all_reduce(x)",
        "Rank 1 ended with exit status 3 before it returned a result.",
    ),
}
"""What the relay refuses as soon as it sees it, and in which words."""


@pytest.mark.parametrize("name", [pytest.param(x, marks=() if x in OFTEN else pytest.mark.long) for x in KINDS])
def test_each_kind_of_deadlock_is_told_of_a_students_ranks_in_the_words_of_all_worlds(name: str, probe: Probe) -> None:
    kind = KINDS[name]
    failure = probe("total", {"total": kind.source}, case=1, seconds=120).failure
    assert failure is not None and failure["kind"] == "deadlock", "the time limit told it"
    assert failure["message"] == kind.headline
    told = [without_places(line) for line in failure["detail"].splitlines()]
    assert tuple(line for line, _ in told) == kind.lines
    assert {code for line, code in told if " waits in " in line} <= kind.codes()


@pytest.mark.long
@pytest.mark.parametrize("name", RAISES)
def test_what_the_relay_refuses_at_once_is_told(name: str, probe: Probe) -> None:
    body, message = RAISES[name]
    failure = probe("total", {"total": f"{HEAD}{body}\n"}, case=1, seconds=120).failure
    assert failure is not None and failure["kind"] not in ("timeout", "deadlock")
    assert re.fullmatch(message, failure["message"])


@pytest.mark.long
@pytest.mark.parametrize(
    "busy",
    [
        "import time\n    if rank == 1: time.sleep(1000)",
        "while rank == 1: pass",
        "if rank == 1: dist.distributed_c10d._get_default_store().get('nobody')",
    ],
    ids=["sleeps", "computes", "waits for a key"],
)
def test_a_rank_that_is_elsewhere_is_named_when_the_time_is_up(busy: str, probe: Probe) -> None:
    failure: Any = probe("total", {"total": f"{HEAD}{busy}\n    dist.barrier()\n"}, case=1, seconds=8).failure
    assert failure["kind"] == "timeout" and failure["message"].startswith("No result within 8 s: ")
    lines = failure["detail"].splitlines()
    assert lines[0].startswith("rank 0 waits in barrier #1, which rank 1 has not reached, at exercise total, line ")
    assert lines[1].startswith(f"rank 1 is {IN_NO_CALL}")
    assert lines[2].startswith("rank 2 waits in barrier #1, which rank 1 has not reached, at exercise total, line ")


@pytest.mark.long
def test_the_students_report_names_the_ranks_of_a_deadlock_and_their_lines(course: Course, tmp_path: Path) -> None:
    chosen = {
        "another tag": "which asks for tag 2, at exercise total, line ",
        "an all_reduce that one rank skips": "which rank 1 finished without, at exercise total, line ",
        "a ring that receives first": " at exercise total, line ",
    }
    for number, name in enumerate(chosen):
        write_submission(tmp_path / "in" / f"student{number}.ipynb", {"total": KINDS[name].source})
    report = grade(
        [tmp_path / "in"], "90", tmp_path / "out", jobs=1, course=course.root, sandbox=SANDBOX, points_only=True
    )
    assert all(entry.points["total"] == 0 and not entry.problem for entry in report)
    for number, (name, line) in enumerate(chosen.items()):
        page = (tmp_path / "out" / f"student{number}" / "feedback.html").read_text()
        assert "Deadlock: " in page and line in page, name
