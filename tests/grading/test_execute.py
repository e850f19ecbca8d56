"""The rebuilt notebook in a real kernel, through papermill: errors, loops, floods and deaths."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import nbformat
import psutil
import pytest

from grading.small_lesson import RIGHT, code_cell, notebook, write_submission
from labkit.grading.course import Course
from labkit.grading.grade import grade
from labkit.grading.limits import Limits
from labkit.grading.notebook.execute import execute
from labkit.grading.notebook.notebook_run import NotebookRun
from labkit.grading.sandbox.process_tree import become_subreaper, descendants, end_descendants

SHORT = Limits(cell_seconds=2.0, grace_seconds=60.0)  # for what never ends; the rest may run on a loaded machine
SHORT_CLASS = Limits(cell_seconds=30.0, notebook_seconds=60.0)


@pytest.fixture(autouse=True)
def there_before() -> Iterator[list[int]]:
    """The processes that other tests keep: their oracle, their browser, the process ranks are forked from."""
    before = [child.pid for child in psutil.Process().children()]
    become_subreaper()  # as a worker is: what a notebook leaves behind comes back to us
    yield before
    end_descendants(keep=before)
    become_subreaper(False)


def run(tmp_path: Path, *sources: str, limits: Limits | None = None) -> NotebookRun:
    content = notebook()
    content["cells"] = [code_cell(f"cell-{index}", source, []) for index, source in enumerate(sources)]
    work = tmp_path / "w"
    work.mkdir()
    return execute(nbformat.from_dict(content), work, limits)


def states(found: NotebookRun) -> list[str]:
    return [cell.state for cell in found.cells]


@pytest.mark.in_turn
def test_an_error_does_not_stop_the_later_cells(tmp_path: Path) -> None:
    found = run(tmp_path, "a = 1", "1 / 0", "def f(:", "print(a + 1)", "import sys; sys.exit(0)", "print('still here')")
    assert states(found) == ["ok", "error", "error", "ok", "error", "ok"]
    assert (found.cells[1].error, found.cells[1].message) == ("ZeroDivisionError", "division by zero")
    assert found.cells[3].text == "2\n" and found.cells[5].text == "still here\n"
    assert found.summary == "3 of 6 cells ran without an error." and found.finished


@pytest.mark.in_turn
def test_a_kernel_that_dies_is_told_with_its_cell(tmp_path: Path) -> None:
    found = run(tmp_path, "a = 1", "import os; os._exit(3)", "print(a)")
    assert states(found) == ["ok", "died", "not_run"]
    assert found.summary == (
        "Cell cell-1 ended the kernel (an exit, a crash, or out of memory); the cells after it were not run."
    )


@pytest.mark.in_turn
def test_a_loop_is_interrupted_and_the_next_cell_runs(tmp_path: Path) -> None:
    found = run(tmp_path, "while True: pass", "print('next')", limits=SHORT)
    assert states(found) == ["timeout", "ok"]


@pytest.mark.long
def test_a_loop_that_ignores_the_interrupt_ends_its_kernel(tmp_path: Path) -> None:
    source = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    found = run(tmp_path, source, "print('next')", limits=replace(SHORT, grace_seconds=3.0))
    assert states(found) == ["timeout", "not_run"]
    assert "did not end within 2 s, nor when it was interrupted" in found.summary


@pytest.mark.in_turn
def test_a_flood_is_cut_and_interrupted(tmp_path: Path) -> None:
    limits = Limits(cell_output_bytes=2000, flood_bytes=200_000, grace_seconds=60.0)
    found = run(tmp_path, "while True: print('x' * 1000)", "print('next')", limits=limits)
    assert states(found) == ["flood", "ok"]
    assert len(found.cells[0].text) < 2500 and "[the rest of the output was cut]" in found.cells[0].text


@pytest.mark.long
def test_the_whole_notebook_has_a_time_too(tmp_path: Path) -> None:
    limits = Limits(cell_seconds=60.0, grace_seconds=60.0, notebook_seconds=3.0)
    found = run(tmp_path, "while True: pass", "print('next')", limits=limits)
    assert states(found) == ["timeout", "not_run"]
    assert found.summary == "The notebook used up its 3 s; the cells after that were not run."


@pytest.mark.in_turn
def test_the_kernel_gets_a_clean_environment_and_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    found = run(tmp_path, "import os\nprint(os.environ.get('SECRET_TOKEN'), os.getcwd(), os.getsid(0) == os.getpid())")
    assert found.cells[0].text == f"None {tmp_path / 'w'} True\n"


@pytest.mark.in_turn
def test_what_a_cell_prints_past_the_kernel_does_not_reach_our_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "import subprocess\nsubprocess.run(['/bin/sh', '-c', 'echo loud; echo louder >&2'])")
    captured = capfd.readouterr()
    assert "loud" not in captured.out + captured.err


LEAVES = (
    "import os, pathlib, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    pathlib.Path({file!r}).write_text(str(os.getpid()))\n"
    "    time.sleep(600)\n"
    "while not pathlib.Path({file!r}).is_file():\n"
    "    time.sleep(0.01)\n"
)


@pytest.mark.in_turn
def test_no_process_is_left(tmp_path: Path, there_before: list[int]) -> None:
    run(tmp_path, LEAVES.format(file=str(tmp_path / "pid")))
    left = int((tmp_path / "pid").read_text())
    assert left in [process.pid for process in descendants(keep=there_before)]
    end_descendants(keep=there_before)
    assert descendants(keep=there_before) == []
    assert not psutil.pid_exists(left)


@pytest.mark.skipif(sys.platform != "linux", reason="orphans come back to their grader on Linux alone")
@pytest.mark.long
def test_a_grader_ends_what_leaves_its_session_and_its_parent_even_where_there_is_no_sandbox(
    course: Course, tmp_path: Path
) -> None:
    source = LEAVES.format(file=str(tmp_path / "pid")) + RIGHT["double"]
    submission = write_submission(tmp_path / "a.ipynb", {"double": source})
    report = grade([submission], "90", tmp_path / "out", course=course.root, sandbox="none", limits=SHORT_CLASS)
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
    assert [entry.score for entry in report] == [2]
