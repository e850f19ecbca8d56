"""What a driver says of an error that it caught in the learner's code."""

from __future__ import annotations

import re
import traceback

_FRAME = re.compile(r'^  File "(?P<path>[^"]*)", line (?P<line>\d+), in .*\n    (?P<code>.*)$', re.M)
_NOT_THEIRS = ("/labkit/", "/torch/", "/site-packages/", "<frozen ", "/lib/python")
_MOST = 300


def raised(error: BaseException) -> str:
    """Return "KeyError: 'step', in line 7, return state['step']": the error and the innermost line of the learner's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(words in frame.filename for words in _NOT_THEIRS)]
    where = f", in line {own[-1].lineno}, {own[-1].line}" if own and own[-1].line else ""
    return f"{type(error).__name__}: {error}"[:_MOST] + where[:_MOST]


def line_in(report: str) -> str:
    """Return ", in line 7, return state['step']" of a traceback's text: the innermost line of the learner's, or ""."""
    found = [each for each in _FRAME.finditer(report) if not any(words in each["path"] for words in _NOT_THEIRS)]
    return f", in line {found[-1]['line']}, {found[-1]['code'].strip()}"[:_MOST] if found else ""
