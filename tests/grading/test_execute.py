"""The rebuilt notebook in a real kernel, through papermill: errors, loops, floods and deaths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import psutil
import pytest

from grading.small_lesson import code_cell, notebook
from labkit.grading.execute import NotebookRun, execute
from labkit.grading.limits import Limits
from labkit.grading.process_tree import descendants, end_descendants

SHORT = Limits(cell_seconds=2.0, notebook_seconds=60.0, cell_output_bytes=2000, flood_bytes=200_000)


@pytest.fixture(autouse=True)
def there_before() -> Iterator[list[int]]:
    """The processes that other tests keep: their oracle, their browser, the process ranks are forked from."""
    before = [child.pid for child in psutil.Process().children()]
    yield before
    end_descendants(keep=before)


def run(tmp_path: Path, *sources: str, limits: Limits = SHORT) -> NotebookRun:
    content = notebook()
    content["cells"] = [code_cell(f"cell-{index}", source, []) for index, source in enumerate(sources)]
    work = tmp_path / "w"
    work.mkdir()
    return execute(nbformat.from_dict(content), work, limits)


def states(found: NotebookRun) -> list[str]:
    return [cell.state for cell in found.cells]


def test_an_error_does_not_stop_the_later_cells(tmp_path: Path) -> None:
    found = run(tmp_path, "a = 1", "1 / 0", "def f(:", "print(a + 1)", "import sys; sys.exit(0)", "print('still here')")
    assert states(found) == ["ok", "error", "error", "ok", "error", "ok"]
    assert (found.cells[1].error, found.cells[1].message) == ("ZeroDivisionError", "division by zero")
    assert found.cells[3].text == "2\n" and found.cells[5].text == "still here\n"
    assert found.summary == "3 of 6 cells ran without an error." and found.finished


def test_a_kernel_that_dies_is_told_with_its_cell(tmp_path: Path) -> None:
    found = run(tmp_path, "a = 1", "import os; os._exit(3)", "print(a)")
    assert states(found) == ["ok", "died", "not_run"]
    assert found.summary == (
        "Cell cell-1 ended the kernel (an exit, a crash, or out of memory); the cells after it were not run."
    )


def test_a_loop_is_interrupted_and_the_next_cell_runs(tmp_path: Path) -> None:
    found = run(tmp_path, "while True: pass", "print('next')")
    assert states(found) == ["timeout", "ok"]


def test_a_loop_that_ignores_the_interrupt_ends_its_kernel(tmp_path: Path) -> None:
    source = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    found = run(tmp_path, source, "print('next')")
    assert states(found) == ["timeout", "not_run"]
    assert "did not end within 2 s, nor when it was interrupted" in found.summary


def test_a_flood_is_cut_and_interrupted(tmp_path: Path) -> None:
    limits = Limits(cell_seconds=30.0, cell_output_bytes=2000, flood_bytes=200_000)
    found = run(tmp_path, "while True: print('x' * 1000)", "print('next')", limits=limits)
    assert states(found) == ["flood", "ok"]
    assert len(found.cells[0].text) < 2500 and "[the rest of the output was cut]" in found.cells[0].text


def test_the_whole_notebook_has_a_time_too(tmp_path: Path) -> None:
    limits = Limits(cell_seconds=60.0, notebook_seconds=3.0)
    found = run(tmp_path, "while True: pass", "print('next')", limits=limits)
    assert states(found) == ["timeout", "not_run"]
    assert found.summary == "The notebook used up its 3 s; the cells after that were not run."


def test_the_kernel_gets_a_clean_environment_and_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    found = run(tmp_path, "import os\nprint(os.environ.get('SECRET_TOKEN'), os.getcwd(), os.getsid(0) == os.getpid())")
    assert found.cells[0].text == f"None {tmp_path / 'w'} True\n"


def test_what_a_cell_prints_past_the_kernel_does_not_reach_our_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, "import subprocess\nsubprocess.run(['/bin/sh', '-c', 'echo loud; echo louder >&2'])")
    captured = capfd.readouterr()
    assert "loud" not in captured.out + captured.err


def test_no_process_is_left(tmp_path: Path, there_before: list[int]) -> None:
    source = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)"
    run(tmp_path, source)
    end_descendants(keep=there_before)
    assert [process for process in descendants(keep=there_before) if process.status() != psutil.STATUS_ZOMBIE] == []
