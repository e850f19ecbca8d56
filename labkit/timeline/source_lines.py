"""Where in the learner's code a call was made, as a notebook names it."""

from __future__ import annotations

import linecache
import re

from labkit.cells import cell_name


def shown_source(source: str) -> tuple[str, str]:
    """Return where the learner wrote the call, "Cell In[5], line 3" or "file.py:3", and the line itself."""
    file, _, line = source.rpartition(":")
    if not file or not line.isdigit():
        return source, ""
    cell = cell_name(file)
    code = linecache.getline(file, int(line)).strip()
    name = re.split(r"[/\\]", file)[-1]
    return f"{cell}, line {line}" if cell else f"{name}:{line}", code[:120]
