"""A notebook's namespace, made of a lesson's given and exercise cells."""

from __future__ import annotations

import linecache
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from labkit.lessons.source import Lesson, load
from labkit.slugs import lesson_slug, names_lesson

SOLUTIONS = Path(__file__).parents[2] / "solutions"
NUMBERS = tuple(sorted(path.name[:2] for path in SOLUTIONS.glob("[0-9][0-9]_*.py")))
"""Of every lesson there is."""
_numbers = count(1)


@cache
def lesson(number: str = "02") -> Lesson:
    """Return a lesson, named by its number or slug, as its source describes it."""
    return load(_source(number))


def slug_of(number: str) -> str:
    """Return a lesson's slug as its file's name says it: tests are collected without parsing sixteen lessons."""
    return lesson_slug(_source(number).stem)


@cache
def answers(slug: str) -> dict[str, str]:
    """Return the lesson's own answer to each of its exercises in code, as source."""
    return {str(cell.exercise): cell.source for cell in lesson(slug).cells if cell.is_code_exercise}


def _source(number: str) -> Path:
    (source,) = [path for path in SOLUTIONS.glob("[0-9][0-9]_*.py") if names_lesson(path.stem, number)]
    return source


def run_cell(source: str, namespace: dict[str, Any]) -> None:
    """Run a cell as a notebook does: its source can be read back for tracebacks and for the ranks."""
    name = f"<cell {next(_numbers)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec", dont_inherit=True), namespace)


def namespace(*, solved: bool = True, extra: str = "", number: str = "02") -> dict[str, Any]:
    """Return what given and exercise cells define; `solved` for the answers, else the stubs; `extra` runs last."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in lesson(number).cells:
        if cell.role == "given" or cell.is_code_exercise:
            run_cell(cell.source if solved else cell.student_source, names)
    if extra:
        run_cell(extra, names)
    return names
