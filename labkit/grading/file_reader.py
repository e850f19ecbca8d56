"""What reads the files that students handed in: where we are root, a process of its own without rights.

The parser of a notebook works on whatever somebody has written. As root it does so in a process that owns nothing, has
no network, and ends where it takes too much memory; the file itself is opened here and handed over. Run as
``python -m labkit.grading.file_reader FD``; FD is a socket to the grading process.
"""

from __future__ import annotations

import encodings.utf_8_sig  # noqa: F401 - what reading takes is loaded while Python's folder can be read
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import astuple
from types import TracebackType
from typing import Any

from labkit.grading.frames import FrameError, read_frame, write_frame
from labkit.grading.limits import Limits
from labkit.grading.sandbox.environments import trusted_environment
from labkit.grading.sandbox.no_root import can_give_up_root, give_up_root
from labkit.grading.submission import (
    AGAIN,
    Submission,
    SubmittedNotebook,
    opened_submission,
    read_cells,
    read_submission,
)
from labkit.interpreter import python
from labkit.lessons.submitted_cell import SubmittedCell

_SECONDS = 60.0
_MOST_BYTES = 256 << 20
_GONE = SubmittedNotebook(problem=f"The file takes more memory or time to read than there is for a notebook. {AGAIN}")


class FileReader:
    """Reads submissions, one after another; close it.

    Args:
        limits: What a submission may have.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._process: subprocess.Popen[bytes] | None = None
        if can_give_up_root():
            self._start()

    def _start(self) -> None:
        self._sock, theirs = socket.socketpair()
        command = python("-m", "labkit.grading.file_reader", str(theirs.fileno()))
        with theirs:
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=trusted_environment(),
                start_new_session=True,
            )  # fmt: skip

    @property
    def pids(self) -> tuple[int, ...]:
        """The process that reads, where there is one."""
        return (self._process.pid,) if self._process else ()

    def read(self, submission: Submission) -> SubmittedNotebook:
        """Return the cells of a submission, or what is wrong with it; no exception leaves this for bad data."""
        if self._process is None or submission.problem:
            return read_submission(submission, self._limits)
        found = opened_submission(submission.path, self._limits)
        if isinstance(found, SubmittedNotebook):
            return found
        if self._process.poll() is not None:
            self.close()
            self._start()
        try:
            self._sock.settimeout(_SECONDS)
            socket.send_fds(self._sock, [b"F"], [found])
            write_frame(self._sock, {"depth": self._limits.notebook_depth, "cells": self._limits.notebook_cells})
            frame = read_frame(self._sock, max_header=1 << 16, max_payload=_MOST_BYTES)
        except (OSError, FrameError):
            frame = None
        finally:
            os.close(found)
        if frame is None:
            self.close()
            self._start()
            return _GONE
        return _told(bytes(frame.payload))

    def close(self) -> None:
        """End the process that reads."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._sock.close()

    def __enter__(self) -> FileReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _told(payload: bytes) -> SubmittedNotebook:
    """Return what the other process has read, which is believed no more than the file is."""
    try:
        cells, problem, notes, lesson = json.loads(payload)
        return SubmittedNotebook(tuple(map(_cell, cells)), str(problem), tuple(map(str, notes)), str(lesson))
    except (ValueError, TypeError, RecursionError):
        return _GONE


def _cell(fields: Sequence[Any]) -> SubmittedCell:
    position, identity, kind, exercise, tags, source = fields
    return SubmittedCell(int(position), str(identity), str(kind), str(exercise), tuple(map(str, tags)), str(source))


def main() -> None:
    """Read files until the grading process closes the socket."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    give_up_root()
    most = Limits().reader_memory_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    while True:
        letter, fds, _, _ = socket.recv_fds(sock, 1, 1)
        if not letter or len(fds) != 1 or (frame := read_frame(sock)) is None:
            return
        with os.fdopen(fds[0], "rb") as file:
            data = file.read()
        most_of = frame.header
        read = read_cells(data, Limits(notebook_depth=int(most_of["depth"]), notebook_cells=int(most_of["cells"])))
        told = [[astuple(cell) for cell in read.cells], read.problem, read.notes, read.lesson]
        text = json.dumps(told, ensure_ascii=False)
        write_frame(sock, {}, text.encode("utf-8", "replace"))


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        os._exit(1)  # the grading process says what that means
