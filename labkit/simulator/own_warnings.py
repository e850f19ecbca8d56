"""Warnings name the program's line, as they would without the frames of labkit between a library and the program."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labkit.simulator.state import current_rank

_LABKIT = str(Path(__file__).parents[1]) + os.sep


def _depth(stacklevel: int) -> int:
    """Return how many frames up from the caller's caller a warning points, counting none of labkit's as a level."""
    frame, depth, left = sys._getframe(2), 1, stacklevel
    while frame.f_back is not None and (left > 1 or frame.f_code.co_filename.startswith(_LABKIT)):
        if not frame.f_code.co_filename.startswith(_LABKIT):
            left -= 1
        frame, depth = frame.f_back, depth + 1
    return depth


@contextmanager
def installed() -> Iterator[None]:
    """Let warnings of ranks name the program's line; leave Python as it was."""
    module: Any = warnings
    real, real_show = module.warn, module._showwarnmsg

    def warn(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **more: Any) -> None:
        if current_rank() is not None:
            stacklevel = _depth(stacklevel)
        real(message, category, stacklevel + 1, source, **more)

    def show(message: Any) -> None:
        if current_rank() is not None and message.filename.startswith(_LABKIT):
            frame = sys._getframe(1)  # C++ warned of what the innermost Python code called
            while frame.f_back is not None and frame.f_code.co_filename.startswith(_LABKIT):
                frame = frame.f_back
            message.filename, message.lineno = frame.f_code.co_filename, frame.f_lineno
        real_show(message)

    module.warn, module._showwarnmsg = warn, show
    try:
        yield
    finally:
        module.warn, module._showwarnmsg = real, real_show
