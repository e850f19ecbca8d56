"""Who is alive beside whom while a class is graded: nobody beside a process that knows what he could use.

Processes of students that try to stay are looked for in /proc all the time, in a batch with two workers.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from grading.small_lesson import RIGHT, write_submission
from grading.test_second_run import ON_DOUBLE, WRONG, _course
from labkit.grading.grade import grade
from labkit.grading.sandbox import bubblewrap
from labkit.grading.submission import Submission
from labkit.grading.workers.local_class import LocalClass

pytestmark = [
    pytest.mark.in_turn,
    pytest.mark.skipif(bool(bubblewrap.problem()), reason=f"no sandbox here: {bubblewrap.problem()}"),
]
STUDENTS = ("ada", "bob", "eve")
STAYS = """
import os, subprocess, time
def stays():
    if os.fork() == 0:
        os.setsid()
        os.close(0)
        subprocess.Popen(["sleep", "86400.{number}"], start_new_session=True)
        os._exit(0)
    time.sleep(0.1)  # so long it can be seen
"""
"""A daemon that bears its student's number, of the kernel and of each rank that calls the student's function."""


def students_alive() -> frozenset[str]:
    """Return the students of whom a process is alive anywhere on this machine."""
    alive = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found = re.fullmatch(rb"sleep\x0086400\.(\d)\x00", path.read_bytes())
        except OSError:
            continue  # it has ended
        if found:
            alive.add(STUDENTS[int(found[1])])
    return frozenset(alive)


def test_while_an_answer_is_in_a_process_no_other_students_process_is_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is one of the same student that could be graded again: the second run is all that is left of the class."""
    for number, name in enumerate(STUDENTS):
        stays = STAYS.format(number=number)
        own = {
            slug: stays + source.replace("):\n", "):\n    stays()\n", 1) + "stays()\n"  # the last in the kernel alone
            for slug, source in {"double": WRONG["double"], "shift": ON_DOUBLE}.items()
        }
        write_submission(tmp_path / "in" / f"{name}.ipynb", RIGHT | own)
    send, now = LocalClass._send, list[frozenset[tuple[str, str]]]()

    def noted(self: LocalClass, busy: Any, submission: Submission, asked: dict[str, str]) -> None:
        running = {(each.op, each.submission.name) for each in self._workers if each.submission is not None}
        if asked["op"] == "finish":
            seen.append((frozenset({("before", submission.name)}), students_alive()))
        now.append(frozenset(running | {(asked["op"], submission.name)}))
        send(self, busy, submission, asked)

    seen: list[tuple[frozenset[tuple[str, str]], frozenset[str]]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            count = len(now)
            alive = students_alive()
            if count and count == len(now):  # else it is not known what it was seen beside
                seen.append((now[-1], alive))
            time.sleep(0.005)

    monkeypatch.setattr(LocalClass, "_send", noted)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        report = grade(
            [tmp_path / "in"], "90", tmp_path / "out", jobs=2, course=_course(tmp_path / "course"), progress=False
        )
    finally:
        over.set()
        watcher.join()
    assert [entry.points for entry in report] == [{"double": 0.0, "shift": 3.0, "total": 5.0}] * len(STUDENTS)
    told = {op: [(ops, alive) for ops, alive in seen if op in {each for each, _ in ops}] for op in ("begin", "go on")}
    assert all(any(alive for _, alive in told[op]) for op in told), "nobody was seen to stay, so nothing was tried"
    second = [(dict(ops), alive) for ops, alive in seen if "finish" in dict(ops)]
    assert any(alive for _, alive in second)
    assert all(ops.keys() == {"finish"} and alive <= {ops["finish"]} for ops, alive in second)
    assert [alive for ops, alive in seen if "before" in dict(ops)] == [frozenset()] * len(STUDENTS)
    assert students_alive() == frozenset()
