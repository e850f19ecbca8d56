"""Kernels, cases and second runs take turns on one machine, whoever grades there; other processes try to begin."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from grading.conftest import SANDBOX
from grading.small_lesson import RIGHT, write_submission
from labkit.errors import EnvironmentProblem
from labkit.grading.course import Course
from labkit.grading.limits import Limits
from labkit.grading.setting import Setting
from labkit.grading.turns import CASES, KERNELS, SECOND_RUN, folder_of_this_machine, turn
from labkit.grading.workers import dask_class, dask_worker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="who waits for a lock is told by Linux's /proc alone")
_WANTS_A_TURN = """
import sys
from pathlib import Path
from labkit.grading.turns import turn
with turn(Path(sys.argv[1]), sys.argv[2]):
    print("begun", flush=True)
    sys.stdin.read()
"""
ALL = (KERNELS, CASES, SECOND_RUN)


def could_begin(folder: Path, of: str) -> bool:
    """Return whether another process gets a turn now."""
    with _begins(folder, of) as began:
        return began()


@contextmanager
def _begins(folder: Path, of: str) -> Iterator[Callable[[], bool]]:
    """Start a process that wants a turn; give what says whether it has it or waits, and end it."""
    command = [sys.executable, "-c", _WANTS_A_TURN, str(folder), of]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        waits = re.compile(rf"-> FLOCK .* {child.pid} ")  # so the kernel lists who waits for a lock

        def began() -> bool:
            while not (has_it := bool(select.select([child.stdout], [], [], 0.01)[0])):
                if waits.search(Path("/proc/locks").read_text(encoding="ascii")):
                    break
            return has_it

        try:
            yield began
        finally:
            child.kill()


@pytest.mark.in_turn
@pytest.mark.parametrize(("of", "beside"), [(KERNELS, [KERNELS]), (CASES, [CASES]), (SECOND_RUN, [])])
def test_kernels_are_beside_kernels_cases_beside_cases_and_a_second_run_is_alone(
    of: str, beside: list[str], tmp_path: Path
) -> None:
    assert [each for each in ALL if could_begin(tmp_path, each)] == list(ALL)
    with turn(tmp_path, of):
        assert [each for each in ALL if could_begin(tmp_path, each)] == beside


@pytest.mark.in_turn
def test_who_waits_is_not_overtaken_and_comes_when_the_last_of_the_others_has_ended(tmp_path: Path) -> None:
    with _begins(tmp_path, KERNELS) as other:
        assert other()
        with turn(tmp_path, KERNELS), _begins(tmp_path, CASES) as waits:
            assert not waits()
            assert not could_begin(tmp_path, KERNELS)
        assert not could_begin(tmp_path, CASES)
    assert could_begin(tmp_path, CASES)


@pytest.mark.in_turn
def test_two_commands_of_one_machine_share_the_turns(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a second run of one class would be alive beside the kernels of another, or of the same once more."""
    monkeypatch.setenv("LABKIT_TURNS", str(tmp_path / "turns"))
    path, out = write_submission(tmp_path / "in" / "ada.ipynb", RIGHT), tmp_path / "out"
    program = "import sys; from labkit.cli import main; sys.argv[1:1] = ['grade']; main()"
    words = [str(path), "--lesson", "90", "--course", str(course.root), "--out", str(out), "--jobs", "1"]
    command = [sys.executable, "-c", program, *words, "--points-only", "--sandbox", SANDBOX]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as graded:
        with turn(folder_of_this_machine(), KERNELS):
            while not _waits_for_a_turn(graded.pid):
                if graded.poll() is not None:
                    pytest.fail(f"it ended beside a kernel of another class: {graded.communicate()[1]}")
        said = graded.communicate()[1]
    assert graded.returncode == 0 and len(list(out.rglob("result.json"))) == 1, said


def _waits_for_a_turn(pid: int) -> bool:
    """Return whether a process or one that it started waits for a lock."""
    try:
        pids = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return False
    waits = re.compile(rf"-> FLOCK .* (?:{'|'.join(map(str, pids))}) ")
    return bool(waits.search(Path("/proc/locks").read_text(encoding="ascii")))


@pytest.mark.in_turn
def test_dask_workers_of_one_machine_share_the_turns_and_other_folders_are_refused(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("LABKIT_TURNS")
    setting = Setting(course, tmp_path / "out", b"k" * 32, Limits(), tmp_path / "alone", sandbox=SANDBOX)
    opening, files = dask_class._opening(setting), dask_class._course_files(course)
    try:
        runs = [dask_worker._run(name, opening, files, setting.fingerprint()) for name in ("a", "b")]
        assert runs[0].folder != runs[1].folder and runs[0].setting.alone == runs[1].setting.alone
        assert runs[0].setting.alone.parent == folder_of_this_machine()
    finally:
        for name in ("a", "b"):
            dask_worker.forget(name)
    runs[0].setting.alone.unlink()
    folder_of_this_machine().rmdir()
    (tmp_path / f"labkit-turns-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(EnvironmentProblem, match="not a folder of yours; remove it"):
        folder_of_this_machine()
