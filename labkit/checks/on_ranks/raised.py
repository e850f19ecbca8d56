"""What a driver says of an error that it caught in the learner's code."""

from __future__ import annotations

import traceback

_NOT_THEIRS = ("/labkit/", "/torch/", "/site-packages/", "<frozen ", "/lib/python")
_MOST = 300


def raised(error: BaseException) -> str:
    """Return "KeyError: 'step', in line 7, return state['step']": the error and the innermost line of the learner's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(words in frame.filename for words in _NOT_THEIRS)]
    where = f", in line {own[-1].lineno}, {own[-1].line}" if own and own[-1].line else ""
    return f"{type(error).__name__}: {error}"[:_MOST] + where[:_MOST]
