"""How a process of ours is started: Python with a safe path, which takes no module from the working folder.

``python -m`` and ``python -c`` look for modules in the working folder first. That folder may be a student's, whose
``json.py`` would then run in our place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def python(*arguments: str) -> list[str]:
    """Return the command that runs this Python with these arguments, and with a safe path (``-P``)."""
    return [sys.executable, "-P", *arguments]


def safe_pythonpath(environ: Mapping[str, str], *first: str) -> str:
    """Return a PYTHONPATH that names no folder a student may have written.

    An empty entry means the working folder, and so does any that is relative; ``PYTHONPATH=FOLDER:$PYTHONPATH`` ends
    in an empty one where nothing was set before.

    Args:
        environ: Its PYTHONPATH is taken, without entries that are relative or lie in the working folder.
        *first: What stands before these, wherever it lies.
    """
    here = Path.cwd()
    named = [Path(entry) for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    safe = [str(path) for path in named if path.is_absolute() and not path.resolve().is_relative_to(here)]
    return os.pathsep.join([*first, *safe])
