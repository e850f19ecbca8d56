"""A notebook's namespace, made of the lesson's given and exercise cells."""

from __future__ import annotations

import linecache
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from labkit.lessons.source import Lesson, load

SOURCE = Path(__file__).parents[2] / "solutions" / "02_ring_all_reduce.py"
_numbers = count(1)


@cache
def lesson() -> Lesson:
    """Return lesson 02 as its source describes it."""
    return load(SOURCE)


def run_cell(source: str, namespace: dict[str, Any]) -> None:
    """Run a cell as a notebook does: its source can be read back for tracebacks and for the ranks."""
    name = f"<cell {next(_numbers)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec", dont_inherit=True), namespace)


def namespace(*, solved: bool = True, extra: str = "") -> dict[str, Any]:
    """Return what given and exercise cells define; `solved` for the answers, else the stubs; `extra` runs last."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in lesson().cells:
        if cell.role in ("given", "exercise"):
            run_cell(cell.source if solved else cell.student_source, names)
    if extra:
        run_cell(extra, names)
    return names
