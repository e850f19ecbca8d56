"""Cells as the notebook has them: their names, ``Cell In[5], line 3``, and lines that only IPython understands."""

from __future__ import annotations

import ast
import re
import sys

_LINE = re.compile(r'^(?P<indent>[ |+-]*)File "(?P<file>[^"]*)", line (?P<line>\d+)', re.MULTILINE)


_ONLY_IPYTHON = re.compile(r"\s*(?:[%!?]|[\w.*%]+\?{1,2}\s*$|[\w, ]+= *[%!])")
_CELL_MAGIC = re.compile(r"\s*%%(\w+)")
_WRITES_FILE = re.compile(
    r"\s*%%(?:writefile|file)[ \t]+"
    r"(?P<line>(?:-a[ \t]+)?(?:\./)?(?:[\w-]+/){0,4}[\w-]+\.\w{1,8})[ \t]*\r?\n(?P<body>.*)",
    re.DOTALL,
)
_RUNS_FILE = re.compile(r"\s*(?:\./)?([A-Za-z_]\w*)\.py\s*")
_AROUND = frozenset({"time", "timeit", "capture", "prun"})
"""The magics of a whole cell whose body is Python and runs in the notebook."""
_MOST_WORK = 1 << 20
"""Characters times lines for IPython beyond which a cell is read line by line: IPython reads it anew for each."""
_SHELL = re.compile(r"\s*(?:\w+ *= *)?(?:!|%%?(?:pip|conda|mamba|uv|sx|system|bash|sh|cmd|script)\b)")


def is_for_ipython(line: str) -> bool:
    """Return whether a line is IPython's and not Python's: ``%time``, ``!ls``, ``len?``, ``files = !ls``."""
    return _ONLY_IPYTHON.match(line) is not None


def calls_shell(line: str) -> bool:
    """Return whether a line of IPython's starts a program: ``!pip install x``, ``%pip install x``, ``%%bash``."""
    return _SHELL.match(line) is not None


def file_written(source: str) -> tuple[str, str] | None:
    """Return the words and the text of a file that a cell writes beside the notebook, ``%%writefile -a mine.py``."""
    found = _WRITES_FILE.match(source)
    return (found["line"], found["body"]) if found else None


def module_run(line: str) -> str | None:
    """Return the module beside the notebook that ``%run tools.py`` runs, from the words behind ``%run``."""
    found = _RUNS_FILE.fullmatch(line)
    return found[1] if found else None


def as_python(source: str) -> str:
    """Return a cell as Python, line for line: as it stands, else as IPython reads it.

    What it asks of IPython calls ``get_ipython()``; a magic around a cell (``%%time``) becomes a comment, and a cell in
    another language (``%%bash``) nothing but comments.
    """
    if _is_python(source):
        return source
    lines = source.splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if lines and (magic := _CELL_MAGIC.match(lines[first])):
        if magic[1] not in _AROUND:
            return "".join(f"# {line}" for line in lines)
        return "".join([*lines[:first], f"# {lines[first]}"]) + as_python("".join(lines[first + 1 :]))
    asked = sum(map(is_for_ipython, lines)) + sum(line.lstrip().startswith((">>>", "In [")) for line in lines)
    if len(source) * (asked + 1) <= _MOST_WORK and (read := _as_ipython_reads(source)) is not None:
        return read
    return "".join(f"# {line}" if is_for_ipython(line) else line for line in lines)


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def _as_ipython_reads(source: str) -> str | None:
    """Return what IPython makes of a cell; None where that is no Python either."""
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        read = str(TransformerManager().transform_cell(source))  # type: ignore[no-untyped-call]
    except (SyntaxError, ValueError, RuntimeError, MemoryError, RecursionError):
        return None
    return read if _is_python(read) else None


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
