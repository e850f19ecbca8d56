"""Where the grader is started as root, what judges and what parses students' files is not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit.grading.file_reader import FileReader
from labkit.grading.hidden_cases.oracle import Oracle
from labkit.grading.limits import Limits
from labkit.grading.sandbox import bubblewrap
from labkit.grading.sandbox.no_root import can_give_up_root
from labkit.grading.submission import Submission, SubmittedNotebook, read_submission

ROOT_ALONE = pytest.mark.skipif(not can_give_up_root(), reason="who is not root has no rights to give up")
_READ_ANY = 1 << 2


@pytest.fixture(scope="module")
def files() -> Iterator[FileReader]:
    with FileReader() as reader:
        yield reader


def status(pid: int, field: str) -> list[str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1:] for line in lines if line.startswith(f"{field}:"))


def is_nobody(pid: int, capabilities: int) -> bool:
    rights = [int(status(pid, each)[0], 16) for each in ("CapPrm", "CapEff", "CapInh", "CapAmb")]
    users = {*status(pid, "Uid"), *status(pid, "Gid")}
    apart = Path(f"/proc/{pid}/ns/net").stat().st_ino != Path("/proc/self/ns/net").stat().st_ino
    return "0" not in users and not status(pid, "Groups") and rights == [capabilities, capabilities, 0, 0] and apart


@pytest.mark.in_turn
@ROOT_ALONE
def test_the_oracle_is_nobody_who_can_read(oracle: Oracle) -> None:
    assert oracle.exercises  # it has loaded the lesson: what comes from students comes afterwards
    assert is_nobody(oracle.pid, _READ_ANY)
    assert status(oracle.pid, "NoNewPrivs") == ["1"]


@ROOT_ALONE
def test_what_parses_a_file_is_nobody(files: FileReader, tmp_path: Path) -> None:
    files.read(written(tmp_path, '{"cells": []}'))
    (pid,) = files.pids
    assert is_nobody(pid, 0)
    assert status(pid, "NoNewPrivs") == ["1"]


def written(folder: Path, text: str | bytes) -> Submission:
    path = folder / "x.ipynb"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o600)
    return Submission("ada", path)


CELL = '{"id": "a", "cell_type": "code", "source": ["x = 1\\n", "\\u2713 \\ud800"], "metadata": {"tags": ["exercise"]}}'


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "text",
    [
        '{"cells": [' + CELL + ', 7], "nbformat": 4}',
        '{"worksheets": [{"cells": [' + CELL + "]}]}",
        "", "[" * 200_000, "{", b"\xff\xfe\x00", "[]", '{"cells": 3}',
        '{"cells": []}', '{"cells": [' + "9" * 5000 + "]}",
    ],
)  # fmt: skip
def test_a_file_is_read_the_same_with_rights_and_without(files: FileReader, tmp_path: Path, text: str | bytes) -> None:
    assert files.read(written(tmp_path, text)) == read_submission(written(tmp_path, text))


def test_a_pipe_and_a_file_that_is_not_there_are_told(files: FileReader, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.ipynb")
    assert "not a plain file" in files.read(Submission("ada", tmp_path / "pipe.ipynb")).problem
    assert "could not be read" in files.read(Submission("ada", tmp_path / "none.ipynb")).problem


@pytest.mark.in_turn
@ROOT_ALONE
def test_a_file_that_swells_ends_the_reading_process_and_costs_nobody_else_anything(tmp_path: Path) -> None:
    with FileReader() as files:
        swelling = '{"cells": [' + "[]," * 8_000_000 + "[]]}"  # 24 MB of text, 64 bytes and more for each pair
        found = files.read(written(tmp_path, swelling))
        assert "takes more memory or time to read" in found.problem
        right = files.read(written(tmp_path, '{"cells": [' + CELL + "]}"))
        assert isinstance(right, SubmittedNotebook)
        assert [cell.source for cell in right.cells] == ["x = 1\n✓ ?"]


def test_limits_hold_in_the_other_process(tmp_path: Path) -> None:
    with FileReader(Limits(notebook_cells=1)) as files:
        assert "the limit is 1." in files.read(written(tmp_path, '{"cells": [' + CELL + ", " + CELL + "]}")).problem


@ROOT_ALONE
@pytest.mark.skipif(bool(bubblewrap.problem() or not shutil.which("setpriv")), reason="needs bubblewrap and setpriv")
def test_bubblewrap_that_is_not_root_cannot_show_what_root_keeps_to_itself(tmp_path: Path) -> None:
    """Why the worker, which makes sandboxes, stays root: Python and labkit may lie below such a folder."""
    kept = tmp_path / "kept"
    (kept / "python").mkdir(parents=True)
    kept.chmod(0o700)
    shown = ["bwrap", "--unshare-user", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib"]
    shown += ["--symlink", "usr/lib64", "/lib64", "--ro-bind", str(kept / "python"), "/python", "/usr/bin/true"]
    other = ["setpriv", "--reuid=60001", "--regid=60001", "--clear-groups"]
    reads = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]

    def said(*words: str) -> str:
        return subprocess.run(words, capture_output=True, text=True).stderr

    assert said(*shown) == ""
    assert "Permission denied" in said(*other, *shown)
    assert "Unexpected capabilities" in said(*other, *reads, *shown)
