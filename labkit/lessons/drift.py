"""Proving that notebooks, slides and executed solutions are what their sources make."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from labkit.errors import LessonError
from labkit.lessons import executed, outputs_now, readme, slides, student
from labkit.lessons.budget import PROMISE, budget, keeps_its_promise
from labkit.lessons.figures import pictures_of
from labkit.lessons.leaks import Passage, find_leaks
from labkit.lessons.lesson import Lesson
from labkit.words import plainly

_SHOWN = 5


@dataclass(frozen=True)
class Drift:
    """One thing that is not as the source has it.

    Attributes:
        file: Relative to the course.
        cell: The cell's id, or None where the whole file is meant.
        why: What differs.
        cure: What mends it, usually a command.
    """

    file: str
    cell: str | None
    why: str
    cure: str

    def __str__(self) -> str:
        """Return the sentence `labkit build --check` prints."""
        return f"{self.file}{f', cell {self.cell}' if self.cell else ''}: {self.why}. Mend it: {self.cure}"


def read_notebook(path: Path) -> Any:
    """Return a notebook file as an nbformat node, unchanged.

    Raises:
        LessonError: If it is not a notebook of format 4.
    """
    try:
        return nbformat.reads(path.read_text(encoding="utf-8"), as_version=nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]
    except (ValueError, nbformat.ValidationError, AttributeError, KeyError) as error:
        raise LessonError(f"{path.name} is not a notebook: {plainly(error)}. Take a whole copy of it.") from error


def lesson_drift(lesson: Lesson, course: Path) -> Iterator[Drift]:
    """Yield what differs between a lesson's source and the three files made from it."""
    cure = f"labkit build {lesson.name}"
    yield from _beyond_limits(lesson)
    for exercise in lesson.exercises:
        if exercise.is_code and not any(cell.role == "check" and cell.exercise == exercise.id for cell in lesson.cells):
            why = f"exercise {exercise.id} has no check cell"
            yield Drift(lesson.file, None, why, f'add a cell tagged check: labkit.check("{exercise.id}", ...)')

    text = readme.read(course)
    if text is not None and readme.with_row(text, lesson) != text:
        yield Drift(readme.README.name, None, f"the row of {lesson.name} has another title or other minutes", cure)

    path = course / "notebooks" / f"{lesson.name}.ipynb"
    if (found := _found(path, course, cure)) is not None:
        yield from found
    else:
        pictures = pictures_of(course / "solutions" / f"{lesson.name}.ipynb")
        wanted_notebook = student.student_notebook(lesson, pictures)
        yield from _notebook_drift(wanted_notebook, path, course, cure, student.student_text(lesson, pictures))

    path = course / "slides" / f"{lesson.name}.md"
    wanted = slides.deck(lesson)
    if wanted is not None and not path.exists():
        yield Drift(_name(path, course), None, "is missing", cure)
    elif wanted is None and path.exists():
        yield Drift(_name(path, course), None, "the source has no cell tagged slide", "remove the file")
    elif wanted is not None and (here := path.read_text(encoding="utf-8")) != wanted:
        yield Drift(_name(path, course), None, _first_difference(wanted, here), cure)

    path = course / "solutions" / f"{lesson.name}.ipynb"
    if (found := _found(path, course, cure)) is not None:
        yield from found
    else:
        yield from _notebook_drift(executed.unexecuted(lesson), path, course, cure, None)
        here = read_notebook(path)
        for identity, why in executed.problems(here):
            yield Drift(_name(path, course), identity or None, why, cure)
        for cell in here["cells"]:
            if outputs_now.draw_now(cell):
                yield Drift(_name(path, course), cell["id"], "holds a figure with an older program", cure)


def _beyond_limits(lesson: Lesson) -> Iterator[Drift]:
    """Yield what is more than a lesson may hold."""
    for why in budget(lesson).excesses():
        cure = "put a cell tagged stop between two sections" if "minutes" in why else "shorten it"
        yield Drift(lesson.file, None, why, f"{cure}, or move what does not fit to another lesson")
    if not keeps_its_promise(lesson):
        cure = f"write `**Time:** {PROMISE} minutes` in its head, with `(two sittings)` where it has a stop"
        yield Drift(lesson.file, None, "does not say how long it takes", cure)


def stray_files(names: set[str], course: Path) -> Iterator[Drift]:
    """Yield generated files whose source is gone."""
    for folder, pattern in (("notebooks", "*.ipynb"), ("slides", "*.md"), ("solutions", "*.ipynb")):
        for path in sorted((course / folder).glob(pattern)):
            if path.stem not in names:
                cure = f"remove it, or write solutions/{path.stem}.py"
                yield Drift(_name(path, course), None, "has no source in solutions/", cure)


def leaks(lessons: list[Lesson], course: Path) -> Iterator[Drift]:
    """Yield where a notebook or deck on disk holds text of any lesson's answers."""
    passages = list(_passages(course))
    for lesson in lessons:
        for leak in find_leaks(lesson, passages):
            why = f"shows a line of the answer to {leak.owner} of {lesson.name}: {leak.line!r}"
            yield Drift(
                leak.passage.file,
                leak.passage.cell,
                why,
                "take it out of this file's source, or write the answer in other words; then labkit build",
            )


def _passages(course: Path) -> Iterator[Passage]:
    for path in sorted((course / "notebooks").glob("*.ipynb")):
        for cell in read_notebook(path)["cells"]:
            shown = [cell["source"]]
            for output in cell.get("outputs", []):
                shown += [str(output.get("text", "")), *map(str, output.get("data", {}).values())]
            yield Passage(_name(path, course), cell.get("id"), "\n".join(shown))
    for path in sorted((course / "slides").glob("*.md")):
        yield Passage(_name(path, course), None, path.read_text(encoding="utf-8"))


def _found(path: Path, course: Path, cure: str) -> list[Drift] | None:
    """Return why a notebook cannot be compared, or None if it can."""
    if not path.exists():
        return [Drift(_name(path, course), None, "is missing", cure)]
    try:
        read_notebook(path)
    except LessonError as error:
        return [Drift(_name(path, course), None, str(error).rstrip("."), cure)]
    return None


def _notebook_drift(wanted: Any, path: Path, course: Path, cure: str, text: str | None) -> Iterator[Drift]:
    """Yield the first few differences; with text (no outputs wanted) at least one if a single byte differs."""
    here = read_notebook(path)
    name = _name(path, course)
    found = list(_cell_differences(wanted, here, outputs=text is None))
    for cell, why in found[:_SHOWN]:
        yield Drift(name, cell, why, cure)
    if len(found) > _SHOWN:
        yield Drift(name, None, f"{len(found) - _SHOWN} more cells differ", cure)
    before, after = (node["metadata"].get("labkit", {}).get("source_sha256", "none") for node in (here, wanted))
    if before != after:
        yield Drift(name, None, f"was made from another source (hash {before[:8]}, now {after[:8]})", cure)
    elif here["metadata"] != wanted["metadata"]:
        yield Drift(name, None, "its metadata differs", cure)
    elif not found and text is not None and path.read_text(encoding="utf-8") != text:
        yield Drift(name, None, "the same notebook in other bytes (saved by another program?)", cure)


def _cell_differences(wanted: Any, here: Any, *, outputs: bool) -> Iterator[tuple[str | None, str]]:
    wanted_ids = [cell["id"] for cell in wanted["cells"]]
    here_ids = [cell.get("id", "(none)") for cell in here["cells"]]
    matcher = difflib.SequenceMatcher(None, wanted_ids, here_ids, autojunk=False)
    for operation, start, end, here_start, here_end in matcher.get_opcodes():
        cells, others = wanted["cells"][start:end], here["cells"][here_start:here_end]
        if operation == "equal" or len(cells) == len(others):
            for cell, other in zip(cells, others, strict=True):
                yield from _differences(cell, other, here_ids, outputs)
            continue
        for cell in cells:
            yield cell["id"], "is not where the source has it" if cell["id"] in here_ids else "is missing"
        for other in others:
            if other.get("id") not in wanted_ids:
                yield other.get("id"), "is not in the source (an id from another program, or a cell added by hand)"


def _differences(cell: Any, other: Any, here_ids: list[str], outputs: bool) -> Iterator[tuple[str | None, str]]:
    """Yield how a cell differs from the one that stands in its place."""
    identity = cell["id"]
    if identity != other.get("id") and identity in here_ids:
        yield identity, "is not where the source has it"
    elif other["cell_type"] != cell["cell_type"]:
        yield identity, f"is a {other['cell_type']} cell, not {cell['cell_type']}"
    elif other["source"] != cell["source"]:
        yield identity, _first_difference(cell["source"], other["source"])
    elif identity != other.get("id"):
        yield identity, f"has the id {other.get('id')} (from another program?)"
    elif not outputs and cell.get("outputs") and not other.get("outputs"):
        yield identity, "has no picture of its figure"
    elif not outputs and (
        other.get("outputs", []) != cell.get("outputs", []) or other.get("execution_count") is not None
    ):
        yield identity, "carries outputs; a learner's notebook has none but pictures of figures"
    elif {**other["metadata"], "execution": None} != {**cell["metadata"], "execution": None}:
        yield identity, "its tags or metadata differ"


def _first_difference(wanted: str, here: str) -> str:
    wanted_lines, here_lines = wanted.split("\n"), here.split("\n")
    for number, (first, second) in enumerate(zip(wanted_lines, here_lines, strict=False), 1):
        if first != second:
            return f"line {number} is {_short(second)}, but the source makes {_short(first)}"
    return f"has {len(here_lines)} lines, but the source makes {len(wanted_lines)}"


def _short(line: str) -> str:
    return repr(line if len(line) <= 70 else line[:67] + "...")


def _name(path: Path, course: Path) -> str:
    return path.relative_to(course).as_posix()
