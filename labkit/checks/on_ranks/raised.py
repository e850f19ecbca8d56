"""What a driver says of an error that it caught in the learner's code."""

from __future__ import annotations

import re
import sys
import threading
import traceback

_FRAME = re.compile(r'^  File "(?P<path>[^"]*)", line (?P<line>\d+), in .*\n    (?P<code>.*)$', re.M)
_NOT_THEIRS = ("/labkit/", "/torch/", "/site-packages/", "<frozen ", "/lib/python")
_MOST = 300


def raised(error: BaseException) -> str:
    """Return "KeyError: 'step', in line 7, return state['step']": the error and the innermost line of the learner's."""
    return f"{type(error).__name__}: {error}"[:_MOST] + _line_of(traceback.extract_tb(error.__traceback__))


def stands_in(thread: threading.Thread) -> str:
    """Return ", in line 7, ready.get()": the innermost line of the learner's that a running thread is in, or ""."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "" if frame is None else _line_of(traceback.extract_stack(frame))


def _line_of(frames: traceback.StackSummary) -> str:
    own = [frame for frame in frames if not any(words in frame.filename for words in _NOT_THEIRS)]
    return f", in line {own[-1].lineno}, {own[-1].line}"[:_MOST] if own and own[-1].line else ""


def line_in(report: str) -> str:
    """Return ", in line 7, return state['step']" of a traceback's text: the innermost line of the learner's, or ""."""
    found = [each for each in _FRAME.finditer(report) if not any(words in each["path"] for words in _NOT_THEIRS)]
    return f", in line {found[-1]['line']}, {found[-1]['code'].strip()}"[:_MOST] if found else ""
