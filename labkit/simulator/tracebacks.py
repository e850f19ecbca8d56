"""Errors of ranks as a learner reads them: without the frames of the simulator and of what starts a thread."""

from __future__ import annotations

import os
import threading
import traceback
from pathlib import Path

from labkit.cells import in_cells

_HIDDEN = (str(Path(__file__).parent) + os.sep, str(Path(__file__).parents[1] / "scripts.py"), threading.__file__)


def describe(error: BaseException) -> tuple[str, str]:
    """Return one line about an error, and its traceback in the learner's own lines."""
    message = str(error)
    if isinstance(error, SystemExit):
        message = f"sys.exit({error.code!r}) was called; return a value instead"
    described = traceback.TracebackException.from_exception(error)
    kept = [frame for frame in described.stack if not frame.filename.startswith(_HIDDEN)]
    described.stack = traceback.StackSummary.from_list(kept)
    text = in_cells("".join(described.format()).rstrip())
    first = message.strip().split("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__, text


def lines_of(error: BaseException) -> list[str]:
    """Return the learner's lines an error went through, the innermost first: "lesson.py(12): push"."""
    frames = traceback.extract_tb(error.__traceback__)
    kept = [frame for frame in frames if not frame.filename.startswith(_HIDDEN)]
    return [in_cells(f"{frame.filename}({frame.lineno}): {frame.name}") for frame in reversed(kept)]
