"""A worker: grades one submission after another, so that what happens to it costs the others nothing.

Run as ``python -m labkit.grading.workers.worker FD``; FD is a socket to the process that hands out submissions. It
imports no torch; the oracle and the template do, in processes of their own.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from labkit.errors import LabkitError
from labkit.grading.frames import read_frame, write_frame
from labkit.grading.preloaded.client import Preloaded
from labkit.grading.sandbox.process_tree import become_subreaper, end_descendants
from labkit.grading.workers.processors import keep_to

if TYPE_CHECKING:
    from labkit.grading.student import Grader

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Grade until the socket is closed."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    become_subreaper()
    logging.getLogger("papermill").setLevel(logging.ERROR)
    logging.getLogger("traitlets").setLevel(logging.CRITICAL)
    preloaded = Preloaded()

    def stop(number: int, frame: FrameType | None) -> None:
        preloaded.stop()  # the notebook's thread must not start again what is ended here
        end_descendants()
        raise SystemExit(143)

    signal.signal(signal.SIGTERM, stop)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    try:
        _work(sock, preloaded)
    finally:
        preloaded.close()
        end_descendants()


def _work(sock: socket.socket, preloaded: Preloaded) -> None:
    from labkit.grading.setting import setting_of  # these take their time, in which torch loads elsewhere
    from labkit.grading.student import Grader

    opening = read_frame(sock)
    if opening is None:
        return
    for pid in (os.getpid(), preloaded.pid):
        keep_to(opening.header.get("processors", ()), pid)
    grader = Grader(setting_of(opening.header), preloaded)
    try:
        _serve(sock, grader)
    finally:
        grader.close()


def _serve(sock: socket.socket, grader: Grader) -> None:
    while (frame := read_frame(sock)) is not None:
        asked, name = frame.header, frame.header["name"]

        def progress(stage: str, name: str = name) -> None:
            write_frame(sock, {"op": "stage", "name": name, "stage": stage})

        try:
            said = _done(grader, asked, progress)
        except LabkitError as error:
            write_frame(sock, {"op": "failed", "name": name, "error": str(error)})
        except Exception as error:
            about = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
            write_frame(sock, {"op": "crashed", "name": name, **about})
        else:
            write_frame(sock, {"op": said, "name": name})


def _done(grader: Grader, asked: Mapping[str, Any], progress: Callable[[str], None]) -> str:
    """Do what is asked and return what became of it: "begun", "unfinished" or "graded"."""
    from labkit.grading.submission import Submission

    if asked["op"] == "finish":
        grader.finish(asked["name"], progress)
    elif asked["op"] == "go on":
        return "graded" if grader.go_on(asked["name"], progress) else "unfinished"
    else:
        submission = Submission(asked["name"], Path(asked["path"]), asked["problem"])
        if asked["op"] == "begin":
            grader.begin(submission, progress)
            return "begun"
        grader.grade(submission, progress)
    return "graded"


if __name__ == "__main__":
    main()
    os._exit(0)  # everything is ended and removed; taking the interpreter apart would only keep the class waiting
