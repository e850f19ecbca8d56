"""How a notebook shows the error of a run: the learner's own lines and the report, no frames of ours between."""

from __future__ import annotations

import traceback

from labkit.errors import RunError
from labkit.launch.stacks import Frame

_RED, _PLAIN = "\x1b[31m", "\x1b[39m"


def show_report_alone(error: RunError) -> None:
    """Make IPython show this error as render() does; a plain Python traceback is as ever."""
    # IPython asks the exception itself; errors.py, at the bottom of the layers, cannot know of notebook cells.
    error._render_traceback_ = lambda: render(error)  # type: ignore[attr-defined]


def render(error: RunError) -> list[str]:
    """Return the lines to show: where in the learner's code run() was called, then the report."""
    calls = [
        Frame(summary.filename, summary.lineno or 0, summary.name)
        for summary in traceback.extract_tb(error.__traceback__)
    ]
    lines = [frame.describe() for frame in calls if frame.is_learners]
    headline, _, rest = str(error).partition("\n")
    return [*lines, "", f"{_RED}{type(error).__name__}{_PLAIN}: {headline}", *rest.split("\n")]
