"""What a run of the tests costs: minutes, minutes of CPU, and the files that take most of it.

CPU counts the tests' own process, all that it started and waited for, and on Linux what still runs below it: the
process that ranks are forked from lives as long as the tests do, and its ranks belong to the file that ran them, not to
the one in which it ends. What is killed unasked is not seen.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

MINUTES, CPU_MINUTES = 7, 10
"""The most that `make test` may take on two cores; CONTRIBUTING.md names both."""
_MOST_FILES = 40
_LEAST_SECONDS = 60.0
"""Runs of less are somebody's few files, whose cost nobody asked for."""


class Cost:
    """Adds up the CPU of each file, here and on the workers of xdist."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._of_files: Counter[str] = Counter()
        self._file, self._before = "", 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Begin another file with its first test: a file's tests come one after another."""
        file = item.nodeid.partition("::")[0]
        if file != self._file:
            self._begin(file)

    def _begin(self, file: str) -> None:
        """Count what was spent to the file that ends here; to look at every process takes 7 ms beside a browser."""
        now = _cpu_seconds()
        if self._file:
            self._of_files[self._file] += max(0.0, now - self._before)  # type: ignore[assignment]
        self._file, self._before = file, now

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the process that started this worker."""
        self._begin("")
        told: Any = getattr(session.config, "workeroutput", None)
        if told is not None:
            told["cpu_seconds"] = dict(self._of_files)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take in what a worker tells."""
        self._of_files.update(getattr(node, "workeroutput", {}).get("cpu_seconds", {}))

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Print the sums, beside the most that `make test` may take."""
        seconds = time.monotonic() - self._began
        if hasattr(config, "workeroutput") or seconds < _LEAST_SECONDS:
            return
        terminalreporter.section("cost")
        terminalreporter.line(summary(seconds, _cpu_seconds()))
        for file, cpu in self._of_files.most_common(_MOST_FILES):
            terminalreporter.line(f"{cpu:8.1f} s of CPU  {file}")


def summary(seconds: float, cpu_seconds: float) -> str:
    """Return what a run took, beside what `make test` may."""
    took = f"{seconds / 60:.1f} min and {cpu_seconds / 60:.1f} min of CPU"
    return f"{took}; `make test` may take {MINUTES} and {CPU_MINUTES} on two cores."


def _cpu_seconds() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system + _below(os.getpid())


def _below(pid: int) -> float:
    """Return the CPU seconds of all processes below one, with those they waited for; 0 where /proc does not tell."""
    seconds = 0.0
    try:
        children = [int(word) for task in Path(f"/proc/{pid}/task").iterdir() for word in _words(task / "children")]
    except OSError:
        return seconds
    for child in children:
        with contextlib.suppress(OSError, IndexError):  # it has ended meanwhile
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        seconds += _below(child)
    return seconds


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
