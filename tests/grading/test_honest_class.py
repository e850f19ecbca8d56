"""A class of 100 honest students over all lessons has exactly its points, by the real command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from grading.class_with_known_scores import command, write_class, wrong_scores
from labkit.grading.sandbox import bubblewrap
from tests.submissions.making import LESSONS

STUDENTS = 100
HONEST = "right"
"""How the names of right answers begin, as taught and in other styles."""


def _share(lesson: str) -> int:
    """Return how many of the class hand in a lesson."""
    return len(range(LESSONS.index(lesson), STUDENTS, len(LESSONS)))


def test_the_class_is_shared_among_all_lessons(tmp_path: Path) -> None:
    assert sum(_share(lesson) for lesson in LESSONS) == STUDENTS
    kinds = {each["kind"] for each in write_class(tmp_path, _share("02"), "02", HONEST).values()}
    assert len(kinds) > 1 and all(kind.startswith(HONEST) for kind in kinds)


@pytest.mark.skipif(bool(bubblewrap.problem()), reason=f"no sandbox here: {bubblewrap.problem()}")
@pytest.mark.long
@pytest.mark.parametrize("lesson", LESSONS)
def test_honest_students_have_exactly_their_points(lesson: str, tmp_path: Path) -> None:
    expected = write_class(tmp_path / "in", _share(lesson), lesson, HONEST)
    ended = subprocess.run(command(tmp_path, 2, lesson, points_only=True), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert wrong_scores(tmp_path / "out", expected) == []
