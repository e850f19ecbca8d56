"""A worker: grades one submission after another, so that what happens to it costs the others nothing.

Run as ``python -m labkit.grading.worker FD``; FD is a socket to the process that hands out submissions. It imports no
torch; the oracle and the template do, in processes of their own.
"""

from __future__ import annotations

import ctypes
import logging
import signal
import socket
import sys
import traceback
from pathlib import Path
from types import FrameType

from labkit.errors import LabkitError
from labkit.grading.course import Course
from labkit.grading.frames import read_frame, write_frame
from labkit.grading.limits import Limits
from labkit.grading.process_tree import become_subreaper, end_descendants
from labkit.grading.student import Grader
from labkit.grading.submission import Submission

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Grade until the socket is closed."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    become_subreaper()
    signal.signal(signal.SIGTERM, _stop)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    logging.getLogger("papermill").setLevel(logging.ERROR)
    logging.getLogger("traitlets").setLevel(logging.CRITICAL)
    opening = read_frame(sock)
    if opening is None:
        return
    told = opening.header
    checks = told["course"].pop("checks")
    paths = {name: Path(value) for name, value in told["course"].items() if name != "lesson"}
    course = Course(lesson=told["course"]["lesson"], checks=Path(checks) if checks else None, **paths)
    limits = Limits(**told["limits"])
    places = (course, Path(told["out"]), told["seed"], limits, Path(told["alone"]))
    grader = Grader(*places, told["points_only"], told["sandbox"])
    try:
        _serve(sock, grader)
    finally:
        grader.close()
        end_descendants()


def _serve(sock: socket.socket, grader: Grader) -> None:
    while (frame := read_frame(sock)) is not None:
        submission = Submission(frame.header["name"], Path(frame.header["path"]), frame.header["problem"])

        def progress(stage: str, name: str = submission.name) -> None:
            write_frame(sock, {"op": "stage", "name": name, "stage": stage})

        try:
            grader.grade(submission, progress)
        except LabkitError as error:
            write_frame(sock, {"op": "failed", "name": submission.name, "error": str(error)})
        except Exception as error:
            about = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
            write_frame(sock, {"op": "crashed", "name": submission.name, **about})
        else:
            write_frame(sock, {"op": "graded", "name": submission.name})


def _stop(number: int, frame: FrameType | None) -> None:
    end_descendants()
    raise SystemExit(143)


if __name__ == "__main__":
    main()
