"""Where a rank stands: Python stacks as a signal handler or a traceback prints them, and in the notebook's words."""

from __future__ import annotations

import linecache
import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from labkit.cells import in_cells

_FAULT_LINE = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)
_LAUNCHER = str(Path(__file__).parent)
_LABKIT = str(Path(__file__).parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


@dataclass(frozen=True)
class Frame:
    """One line of a stack."""

    file: str
    line: int
    function: str

    @property
    def is_learners(self) -> bool:
        """Whether the line is the learner's own: neither ours nor that of an installed library."""
        return not self.file.startswith((_LABKIT, "<", *_LIBRARIES)) or self.file.startswith(("<ipython", "<cell"))

    def describe(self) -> str:
        """Return the frame as two lines: where, and the text of that line where it is known."""
        text = linecache.getline(self.file, self.line).strip()
        where = in_cells(f'  File "{self.file}", line {self.line}, in {self.function}')
        return f"{where}\n    {text}" if text else where


def parse_fault(text: str) -> list[Frame]:
    """Return the frames of the last stack that faulthandler wrote, outermost first, the launcher's own left out."""
    start = max(text.rfind("Current thread"), text.rfind("Stack (most recent call first)"), 0)
    frames = [Frame(m["file"], int(m["line"]), m["function"]) for m in _FAULT_LINE.finditer(text, start)]
    return [frame for frame in reversed(frames) if not frame.file.startswith((_LAUNCHER, "<string>"))]


def describe_stack(frames: list[Frame]) -> str:
    """Return the learner's part of a stack, and the innermost frame where that is a library's; "" without frames."""
    own = [frame for frame in frames if frame.is_learners]
    if not frames:
        return ""
    shown = own[-4:] if own else frames[-3:]
    return "\n".join(frame.describe() for frame in shown)
