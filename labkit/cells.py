"""Cells as the notebook has them: their names, ``Cell In[5], line 3``, and lines that only IPython understands."""

from __future__ import annotations

import re
import sys

_LINE = re.compile(r'^(?P<indent>[ |+-]*)File "(?P<file>[^"]*)", line (?P<line>\d+)', re.MULTILINE)


_ONLY_IPYTHON = re.compile(r"\s*(?:[%!?]|[\w.*%]+\?{1,2}\s*$|[\w, ]+= *[%!])")
_SHELL = re.compile(r"\s*(?:\w+ *= *)?(?:!|%%?(?:pip|conda|mamba|uv|sx|system|bash|sh|cmd|script)\b)")


def is_for_ipython(line: str) -> bool:
    """Return whether a line is IPython's and not Python's: ``%time``, ``!ls``, ``len?``, ``files = !ls``."""
    return _ONLY_IPYTHON.match(line) is not None


def calls_shell(line: str) -> bool:
    """Return whether a line of IPython's starts a program: ``!pip install x``, ``%pip install x``, ``%%bash``."""
    return _SHELL.match(line) is not None


def cell_name(file: str) -> str | None:
    """Return "Cell In[5]" for the code of a cell of this kernel, None for any other file."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    name_of = getattr(getattr(get_ipython(), "compile", None), "format_code_name", None)
    named = name_of(file) if name_of is not None else None
    return f"{named[0]} {named[1]}" if named else None


def in_cells(text: str) -> str:
    """Return a traceback with cells under their names."""

    def replace(match: re.Match[str]) -> str:
        name = cell_name(match["file"])
        return match[0] if name is None else f"{match['indent']}{name}, line {match['line']}"

    return _LINE.sub(replace, text)


def place(source: str) -> str:
    """Return a file:line as reports show it: "lesson.py, line 12", "Cell In[5], line 3", "" for no source."""
    path, _, line = source.rpartition(":")
    name = cell_name(path) or path.replace(chr(92), "/").rsplit("/", 1)[-1]
    return f"{name}, line {line}" if source else ""
