"""built(): a page of what a learner built, made from the checks that their notebooks show as passed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from labkit.errors import LessonError
from labkit.lessons.code import is_stub
from labkit.lessons.lesson import CODE_TASKS
from labkit.lessons.manifest import from_metadata
from labkit.words import plural

PASSED, WRITTEN, OPEN = "passed", "written, not checked", "open"


@dataclass(frozen=True)
class Made:
    """One exercise in a learner's notebook.

    Attributes:
        lesson: The lesson's heading.
        name: The exercise's number and title.
        provides: The functions or classes that it asks for.
        bonus: Whether it is a bonus.
        state: PASSED where the notebook shows a check that passed, WRITTEN where there is an answer without one, OPEN.
    """

    lesson: str
    name: str
    provides: tuple[str, ...]
    bonus: bool
    state: str


@dataclass(frozen=True)
class Built:
    """What a learner built, lesson by lesson; a notebook shows it as a page.

    Attributes:
        made: Every exercise that asks for code, in the order of the course.
    """

    made: tuple[Made, ...]

    def __repr__(self) -> str:
        lines = [self._sum()]
        for lesson, rows in self._lessons():
            passed = [each for each in rows if each.state == PASSED]
            lines.append(f"{lesson}: {', '.join(name for each in passed for name in each.provides) or 'nothing yet'}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        marks = {PASSED: "✓", WRITTEN: "…", OPEN: "·"}
        body = []
        for lesson, rows in self._lessons():
            cells = ", ".join(
                f'<span title="{escape(each.name)}: {each.state}" style="opacity:{1 if each.state == PASSED else 0.5}">'
                f"{marks[each.state]} <code>{escape(', '.join(each.provides))}</code></span>"
                for each in rows
                if each.state != OPEN or not each.bonus
            )
            body.append(
                f'<tr><td style="text-align:left">{escape(lesson)}</td><td style="text-align:left">{cells}</td></tr>'
            )
        return f"<p><b>{escape(self._sum())}</b></p><table>{''.join(body)}</table>"

    def _lessons(self) -> list[tuple[str, list[Made]]]:
        found: dict[str, list[Made]] = {}
        for each in self.made:
            found.setdefault(each.lesson, []).append(each)
        return list(found.items())

    def _sum(self) -> str:
        passed = [each for each in self.made if each.state == PASSED]
        if not passed:
            return "The notebooks in this folder show no check that passed yet."
        names = sum(len(each.provides) for each in passed)
        lessons = len({each.lesson for each in passed})
        return f"You built {plural(names, 'part')} in {plural(lessons, 'lesson')}, and their checks passed."


def built(folder: Path | None = None) -> Built:
    """Return a page of what you built: the exercises whose checks passed, as your saved notebooks show them.

    Args:
        folder: Where the notebooks are; None is the folder this notebook runs in.
    """
    return Built(
        tuple(each for path in sorted((folder or Path.cwd()).glob("[0-9][0-9]_*.ipynb")) for each in _of(path))
    )


def _of(path: Path) -> Iterator[Made]:
    """Yield the exercises of a notebook; nothing where it is no lesson or cannot be read."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        manifest = from_metadata(notebook["metadata"], path.name)
    except (LessonError, OSError, ValueError, KeyError, TypeError):
        return
    text = json.dumps([each.get("outputs", []) for each in notebook["cells"] if "check" in _tags(each)])
    cells = {_exercise(each): "".join(each["source"]) for each in notebook["cells"] if set(CODE_TASKS) & _tags(each)}
    for exercise in (each for each in manifest.exercises if each.is_code):
        source = cells.get(exercise.id, "")
        state = OPEN if not source or is_stub(source) else WRITTEN
        if state == WRITTEN and f"Exercise {exercise.id}: passed" in text:
            state = PASSED
        yield Made(manifest.title, exercise.name, exercise.provides, exercise.bonus, state)


def _tags(cell: Any) -> set[str]:
    return set(cell["metadata"].get("tags", []))


def _exercise(cell: Any) -> str:
    return str(cell["metadata"].get("labkit", {}).get("exercise", ""))
