"""Workers that grade at the same time have processors of their own, and so has all that they start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from grading.conftest import SANDBOX
from grading.small_lesson import RIGHT, write_submission
from labkit.grading.course import Course
from labkit.grading.grade import grade
from labkit.grading.workers.local_class import LocalClass
from labkit.grading.workers.processors import processors, share


@pytest.mark.parametrize(
    ("there", "count", "shares"),
    [
        ([0, 1], 2, [(0,), (1,)]),
        ([2, 3, 6, 7, 8], 2, [(2, 3), (6, 7, 8)]),
        ([0, 1, 2, 3], 3, [(0,), (1,), (2, 3)]),
        ([0, 1], 1, [()]),
        ([0], 2, [(), ()]),
        ([], 2, [(), ()]),
    ],
)
def test_each_processor_is_one_workers_unless_there_are_fewer(
    there: list[int], count: int, shares: list[tuple[int, ...]]
) -> None:
    assert [share(place, count, there) for place in range(count)] == shares


@pytest.mark.in_turn
@pytest.mark.skipif(len(processors()) < 2, reason="there is one processor here, or the system does not tell")
def test_all_that_a_worker_starts_stays_on_its_processors(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ada", "bob", "eve"):
        write_submission(tmp_path / "in" / f"{name}.ipynb", RIGHT)
    listen, seen = LocalClass._listen, list[dict[int, set[tuple[int, ...]]]]()

    def noted(self: LocalClass, busy: Any) -> None:
        listen(self, busy)
        places: dict[int, set[tuple[int, ...]]] = {}
        for each in self._workers:
            tree = [
                each.worker.process.pid,
                *(child.pid for child in psutil.Process(each.worker.process.pid).children(True)),
            ]
            if each.stage not in ("", "starting"):  # it has said something since it was told
                places[each.place] = {kept for pid in tree if (kept := _kept_to(pid))}
        seen.append(places)

    monkeypatch.setattr(LocalClass, "_listen", noted)
    report = grade(
        [tmp_path / "in"], "90", tmp_path / "out", jobs=2, course=course.root, sandbox=SANDBOX, progress=False
    )
    assert [entry.score for entry in report] == [10, 10, 10]
    most = max(seen, key=lambda places: sum(map(len, places.values())))
    assert most == {place: {share(place, 2, processors())} for place in (0, 1)}


def _kept_to(pid: int) -> tuple[int, ...]:
    """Return a process's processors; () where it has ended."""
    try:
        return tuple(sorted(os.sched_getaffinity(pid)))
    except ProcessLookupError:
        return ()
