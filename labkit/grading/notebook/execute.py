"""Run a rebuilt notebook: papermill in a process of its own that has no rights, little memory, and nothing to lose.

What a kernel sends is read there, never in the process that counts points. Where the grader is root, that process is
the throw-away user whom the sandboxes belong to.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labkit.errors import EnvironmentProblem
from labkit.grading.frames import FrameError, read_frame, write_frame
from labkit.grading.limits import Limits
from labkit.grading.notebook.notebook_run import BROKEN, KERNEL, CellRun, NotebookRun, summary
from labkit.grading.notebook.sandboxed_kernel import SandboxedKernel
from labkit.grading.own_folders import own_prefix
from labkit.grading.preloaded.client import Preloaded
from labkit.grading.sandbox.bubblewrap import without_rights
from labkit.grading.sandbox.environments import trusted_environment
from labkit.grading.sandbox.memory_watch import MemoryWatch
from labkit.grading.sandbox.process_tree import child_pids, end_descendants
from labkit.interpreter import python

_ANSWER_BYTES = 32 << 20
_ASIDE_SECONDS = 120.0
"""What starting and ending a kernel may take besides the notebook's own time."""


class NotebookReader:
    """Starts the reading process at once, in the background.

    Args:
        hidden: What sandboxes must not show; None for no sandbox: then notebooks and reader have all rights of ours.
        limits: What a notebook may use.
    """

    def __init__(self, hidden: Sequence[Path] | None, limits: Limits | None = None) -> None:
        self._confined, self._hidden, self._limits = hidden is not None, tuple(hidden or ()), limits or Limits()
        self._control = tempfile.TemporaryDirectory(prefix=own_prefix("reader"))
        self._start()

    def _start(self) -> None:
        self._sock, theirs = socket.socketpair()
        most = self._limits.reader_memory_bytes if self._confined else 0
        command = python("-m", "labkit.grading.notebook.reader", str(theirs.fileno()), str(most))
        with theirs:
            if self._confined:
                command = without_rights(command, Path(self._control.name), self._hidden)
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=trusted_environment(),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id, or that of the bubblewrap it runs in."""
        return self._process.pid

    def end_the_rest(self) -> None:
        """End what a notebook without a sandbox has left; with one, nothing is below the reader."""
        if not self._confined:
            end_descendants(self._process.pid)

    def run(self, notebook: Any, work: Path, preloaded: Preloaded | None = None) -> NotebookRun:
        """Return what became of `notebook`, run in a fresh kernel.

        Args:
            notebook: A rebuilt notebook, nbformat's.
            work: An empty folder; the kernel runs in it where there is no sandbox.
            preloaded: Fork the kernel from it; else, and without a sandbox, the kernel is a new program.

        Raises:
            EnvironmentProblem: If there can be no sandbox.
        """
        if self._process.poll() is not None:
            self._sock.close()
            self._start()
        kernel: SandboxedKernel | None = None
        exceeded: list[bool] = []

        def roots() -> Sequence[int]:
            return kernel.roots if kernel else () if self._confined else child_pids(self._process.pid)

        def end() -> None:
            exceeded.append(True)
            for pid in () if kernel else child_pids(self._process.pid):
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            if kernel:
                kernel.kill()

        def start(connection: Mapping[str, Any]) -> Mapping[str, Any]:
            nonlocal kernel
            if kernel is not None or not self._confined:
                raise FrameError("a kernel is started once")
            kernel = SandboxedKernel(connection, self._hidden, self._limits, preloaded)
            return {"first_pid": kernel.first_pid, "kernel_pid": kernel.kernel_pid}

        try:
            with MemoryWatch(roots, self._limits.kernel_memory_bytes, end):
                told = self._follow_reader(notebook, work, start)
        finally:
            if kernel is not None:
                kernel.close()
        return _run_of(told, bool(exceeded), self._limits)

    def _follow_reader(
        self, notebook: Any, work: Path, start: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> Mapping[str, Any] | None:
        """Return what the reader tells at the end, or None where it ended, hung or told nonsense; then it is ended."""
        deadline = time.monotonic() + self._limits.notebook_seconds + _ASIDE_SECONDS
        try:
            write_frame(self._sock, {"notebook": notebook, "work": str(work), "limits": asdict(self._limits)})
            while True:
                self._sock.settimeout(max(0.1, deadline - time.monotonic()))
                frame = read_frame(self._sock, max_header=_ANSWER_BYTES, max_payload=0)
                if frame is None:
                    break
                if "connection" not in frame.header:
                    return frame.header
                write_frame(self._sock, start(frame.header["connection"]))
        except EnvironmentProblem:
            self._end()
            raise
        except (OSError, FrameError):
            pass
        self._end()
        return None

    def close(self) -> None:
        """End it."""
        self._end()
        self._control.cleanup()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._sock.close()


def execute(
    notebook: Any,
    work: Path,
    limits: Limits | None = None,
    sandbox: Sequence[Path] | None = None,
    preloaded: Preloaded | None = None,
) -> NotebookRun:
    """Return what became of one notebook; see :meth:`NotebookReader.run`.

    Args:
        notebook: A rebuilt notebook, nbformat's.
        work: An empty folder, short enough for a socket's path.
        limits: Time, memory and output it may use.
        sandbox: Run it in a sandbox, which sees none of these files and folders; None for no sandbox.
        preloaded: Fork the kernel from it; else, and without a sandbox, the kernel is a new program.
    """
    reader = NotebookReader(sandbox, limits)
    try:
        return reader.run(notebook, work, preloaded)
    finally:
        reader.close()


def _run_of(told: Mapping[str, Any] | None, out_of_memory: bool, limits: Limits) -> NotebookRun:
    """Return what the reader told, which is believed no more than the notebook is."""
    try:
        told = told or {"cells": [], "stopped": BROKEN, "failure": "", "revealed": {}}
        cells = tuple(CellRun(*map(str, cell)) for cell in told["cells"])
        stopped, failure = str(told["stopped"]), str(told["failure"])[:2000]
        if out_of_memory and not stopped:
            stopped = KERNEL
        words = summary(cells, stopped, failure, out_of_memory, limits)
        seconds = float(told.get("cells_seconds", 0.0))
        return NotebookRun(cells, words, not stopped, dict(told["revealed"]), seconds)
    except (LookupError, TypeError, ValueError):
        return NotebookRun((), summary((), BROKEN, "", out_of_memory, limits), False)
