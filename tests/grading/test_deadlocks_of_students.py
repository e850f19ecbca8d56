"""Whatever keeps a student's ranks from going on is told from what the relay saw, long before a case's time is up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grading.conftest import SANDBOX, Probe
from grading.small_lesson import write_submission
from labkit.grading.course import Course
from labkit.grading.grade import grade
from labkit.launch.reports import IN_NO_CALL

HEAD = "def total(x):\n    rank, n = dist.get_rank(), dist.get_world_size()\n    "


@dataclass(frozen=True)
class Kind:
    """An answer to `total` that does not end, on three ranks.

    Attributes:
        body: What follows `HEAD`.
        message: The first sentence of the report.
        lines: What it says of some ranks, each the beginning of a line.
    """

    body: str
    message: str
    lines: tuple[str, ...]


def _others(waiting: str, missing: str) -> str:
    return f"Deadlock: {waiting} still wait{'s' if ' and ' not in waiting else ''} for what {missing} will never do."


KINDS = {
    "a receive of what nobody sends": Kind(
        "if rank == 0: dist.recv(x, 1)", _others("rank 0", "rank 1"), ("rank 0 waits for 40 bytes from rank 1",)
    ),
    "a send that nobody receives": Kind(
        "if rank == 0: dist.send(x, 1)", _others("rank 0", "rank 1"), ("rank 0 waits for rank 1 to receive 40 bytes",)
    ),
    "crossed receives": Kind(
        "if rank < 2:\n        dist.recv(x, 1 - rank)\n        dist.send(x, 1 - rank)",
        "Deadlock: rank 0 and rank 1 wait for each other.",
        ("rank 0 waits for 40 bytes from rank 1", "rank 1 waits for 40 bytes from rank 0", "rank 2 has finished"),
    ),
    "a ring that receives first": Kind(
        "dist.recv(x, (rank - 1) % n)\n    dist.send(x, (rank + 1) % n)",
        "Deadlock: every rank waits to receive, and nothing has been sent that would answer it.",
        ("rank 0 waits for 40 bytes from rank 2", "rank 2 waits for 40 bytes from rank 1"),
    ),
    "another tag": Kind(
        "if rank == 0: dist.send(x, 1, tag=1)\n    if rank == 1: dist.recv(x, 0, tag=2)",
        "Deadlock: rank 0 and rank 1 wait for each other.",
        (
            "rank 0 waits for rank 1 to receive 40 bytes with tag 1, which asks for tag 2",
            "rank 1 waits for 40 bytes from rank 0 with tag 2, which sends tag 1",
        ),
    ),
    "a posted receive": Kind(
        "if rank == 0: dist.irecv(x, 1).wait()\n    dist.barrier()",
        "Deadlock: every rank waits for another one.",
        ("rank 0 waits for 40 bytes from rank 1", "rank 1 waits in barrier for rank 0"),
    ),
    "an all_reduce that one rank skips": Kind(
        "if rank != 1: dist.all_reduce(x)",
        _others("rank 0 and rank 2", "rank 1"),
        ("rank 0 waits in all_reduce for rank 1", "rank 1 has finished", "rank 2 waits in all_reduce for rank 1"),
    ),
    "a barrier that one rank skips": Kind(
        "if rank != 2: dist.barrier()",
        _others("rank 0 and rank 1", "rank 2"),
        ("rank 0 waits in barrier for rank 2", "rank 1 waits in barrier for rank 2"),
    ),
    "a rank that returns early": Kind(
        "for _ in range(3):\n        dist.all_reduce(x)\n        if rank == 1: return",
        _others("rank 0 and rank 2", "rank 1"),
        ("rank 0 waits in all_reduce for rank 1", "rank 1 has finished"),
    ),
    "different collectives": Kind(
        "dist.all_reduce(x) if rank else dist.broadcast(x, 0)",
        r"Rank \d called (broadcast|all_reduce) while rank \d called (broadcast|all_reduce): all must call the same.",
        (),
    ),
    "another order of collectives": Kind(
        "calls = [lambda: dist.all_reduce(x), lambda: dist.broadcast(x[:2], 0)]\n"
        "    for call in calls if rank else calls[::-1]: call()",
        r"Rank \d called (broadcast|all_reduce) while rank \d called (broadcast|all_reduce): all must call the same.",
        (),
    ),
    "a broadcast from different ranks": Kind("dist.broadcast(x, rank)", r"Ranks \d and \d each gave to broadcast.", ()),
    "a rank that dies": Kind(
        "import os\n    if rank == 1: os._exit(3)\n    dist.all_reduce(x)",
        "Rank 1 ended with exit status 3 before it returned a result.",
        (),
    ),
}
OFTEN = ("another tag", "crossed receives", "a barrier that one rank skips")
"""Tried every time; tests/grading/test_probe.py and test_relay.py have others."""


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in OFTEN else pytest.mark.long) for each in KINDS]
)
def test_each_kind_of_deadlock_names_the_ranks_and_what_each_stands_in(name: str, probe: Probe) -> None:
    kind = KINDS[name]
    failure = probe("total", {"total": f"{HEAD}{kind.body}\n"}, case=1, seconds=120).failure
    assert failure is not None and failure["kind"] != "timeout", "the time limit told it"
    if kind.lines:
        assert failure["message"] == kind.message
    else:
        assert re.fullmatch(kind.message, failure["message"])
    said = failure["detail"].splitlines()
    for words in kind.lines:
        assert any(line.startswith(words) for line in said), said


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
    assert lines[0].startswith("rank 0 waits in barrier for rank 1 (exercise total, line ")
    assert lines[1].startswith(f"rank 1 is {IN_NO_CALL}")
    assert lines[2].startswith("rank 2 waits in barrier for rank 1 (exercise total, line ")


@pytest.mark.long
def test_the_students_report_names_the_ranks_of_a_deadlock_and_their_lines(course: Course, tmp_path: Path) -> None:
    chosen = {
        "another tag": "with tag 1, which asks for tag 2 (exercise total, line ",
        "an all_reduce that one rank skips": "rank 0 waits in all_reduce for rank 1 (exercise total, line ",
        "a ring that receives first": "from rank 0 (exercise total, line ",
    }
    for number, name in enumerate(chosen):
        write_submission(tmp_path / "in" / f"student{number}.ipynb", {"total": f"{HEAD}{KINDS[name].body}\n"})
    report = grade(
        [tmp_path / "in"], "90", tmp_path / "out", jobs=1, course=course.root, sandbox=SANDBOX, points_only=True
    )
    assert all(entry.points["total"] == 0 and not entry.problem for entry in report)
    for number, (name, line) in enumerate(chosen.items()):
        page = (tmp_path / "out" / f"student{number}" / "feedback.html").read_text()
        assert "Deadlock: " in page and line in page, name
