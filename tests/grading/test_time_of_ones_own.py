"""What others keep a submission waiting is not taken from its time."""

from __future__ import annotations

import fcntl
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from grading.small_lesson import RIGHT, write_submission
from labkit.grading import student
from labkit.grading.course import Course
from labkit.grading.limits import Limits
from labkit.grading.setting import Setting
from labkit.grading.student import WAITING, Grader
from labkit.grading.submission import Submission
from labkit.grading.workers import local_class
from labkit.grading.workers.local_class import Busy


class _Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.in_turn
def test_waiting_for_the_retries_of_others_takes_no_points(
    course: Course, grader: Callable[[Setting], Grader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock()

    def flock(file: object, how: int) -> None:
        if how & fcntl.LOCK_NB:
            raise BlockingIOError
        clock.now += 10_000

    names = {name: getattr(fcntl, name) for name in ("LOCK_SH", "LOCK_EX", "LOCK_NB")}
    monkeypatch.setattr(student, "fcntl", types.SimpleNamespace(flock=flock, **names))
    monkeypatch.setattr(student, "time", clock)
    (tmp_path / "alone").touch()
    path = write_submission(tmp_path / "right.ipynb", RIGHT)
    stages: list[str] = []
    setting = Setting(course, tmp_path / "out", b"key", Limits(), tmp_path / "alone", points_only=True, sandbox="none")
    result = grader(setting).grade(Submission("right", path), stages.append)
    assert result.score == 10 and WAITING in stages


def test_a_worker_that_waits_for_others_is_not_taken_for_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    monkeypatch.setattr(local_class, "time", clock)
    busy = Busy(None, Submission("ada", Path("ada.ipynb")))  # type: ignore[arg-type]
    for stage, seconds in (("a case", 90), (WAITING, 5000), ("a case", 9), (WAITING, 5000)):
        busy.enter(stage)
        clock.now += seconds
        assert not busy.is_over(100)
    busy.enter("a case")
    clock.now += 2
    assert busy.is_over(100)
