"""A lesson as a talk: what stands on each slide, and what its speaker says.

Nothing is written twice. Cells tagged ``slide`` or ``slide-only`` are slides; so is every picture of the executed
solution (not those of guesses) and every exercise, with its minutes. The prose between two slides is the notes of the
first.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from labkit.errors import LessonError
from labkit.lessons.lesson import Cell, Lesson

DRAWN = "labkit-figure"


@dataclass
class Slide:
    """One slide.

    Attributes:
        kind: "prose" (Markdown), "figure" (HTML of an output) or "exercise" (Markdown: what to do, how long).
        body: What it shows.
        exercise: The exercise of an "exercise" slide.
        title: The heading a "figure" stands under.
        notes: Markdown for the speaker.
    """

    kind: Literal["prose", "figure", "exercise"]
    body: str
    exercise: str | None = None
    title: str = ""
    notes: list[str] = field(default_factory=list)


def lesson_slides(lesson: Lesson, shown: Any) -> list[Slide]:
    """Return the slides of a lesson; the first one is its title.

    Args:
        lesson: The lesson, from its source.
        shown: Its notebook with outputs and without answers (labkit.lessons.shown).
    """
    outputs = {cell.id: cell.outputs for cell in shown.cells if cell.cell_type == "code"}
    slides: list[Slide] = []
    heading = ""
    for cell in lesson.cells:
        headings = re.findall(r"^#+ (.+)$", cell.student_source, re.M) if cell.kind == "markdown" else ()
        heading = headings[-1] if headings else heading
        if cell.kind == "markdown" and {"slide", "slide-only"} & set(cell.tags):
            slides.append(Slide("prose", cell.student_source))
        elif cell.kind == "markdown" and slides:
            slides[-1].notes.append(cell.student_source)
        elif cell.role == "exercise" and cell.exercise:
            slides.append(Slide("exercise", _task(lesson, cell), cell.exercise))
        elif cell.role not in ("check", "solution") and "labkit.reveal(" not in cell.source:
            drawn = filter(None, map(_drawn, outputs.get(cell.id, ())))
            slides += [Slide("figure", html, title=heading) for html in drawn]
    return slides


def _task(lesson: Lesson, cell: Cell) -> str:
    exercise = next(each for each in lesson.exercises if each.id == cell.exercise)
    bonus = ", a bonus" if exercise.bonus else ""
    said = {
        node.name: (ast.get_docstring(node) or "").split("\n")[0]
        for node in ast.walk(ast.parse(cell.student_source))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    functions = "\n".join(f"* `{name}`: {said.get(name, '')}".rstrip(": ") for name in exercise.provides)
    return (
        f"### Your turn: {exercise.id} {exercise.title}\n\n{functions}\n\n"
        f"**{exercise.minutes} minutes** · {exercise.points} points{bonus} · difficulty {exercise.difficulty} of 5"
    )


def _drawn(output: Any) -> str:
    """Return an output's picture or explorer as HTML, "" for one that is text."""
    data = output.get("data", {})
    if DRAWN in data.get("text/html", ""):
        return str(data["text/html"])
    if "image/png" in data:
        sentence = str(data.get("text/plain", "")).split("\n")[0]
        return f'<img src="data:image/png;base64,{"".join(data["image/png"].split())}" alt="{_attribute(sentence)}">'
    return ""


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


@dataclass(frozen=True)
class Part:
    """A part of a workshop: a lesson up to its last exercise named here.

    Attributes:
        lesson: Its number.
        minutes: How long it takes in the room.
        exercises: Those the room does; the others stay for home.
    """

    lesson: str
    minutes: int
    exercises: tuple[str, ...]


@dataclass(frozen=True)
class Workshop:
    """Several lessons in one sitting.

    Attributes:
        name: The file's stem.
        title: What stands on the first slide.
        parts: In order.
    """

    name: str
    title: str
    parts: tuple[Part, ...]


def read_workshop(path: Path) -> Workshop:
    """Return a workshop's plan: ``title`` and ``[[part]]`` with ``lesson``, ``minutes``, ``exercises``.

    Raises:
        LessonError: If the file is no such plan.
    """
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
        parts = tuple(
            Part(str(part["lesson"]), int(part["minutes"]), tuple(map(str, part["exercises"])))
            for part in plain["part"]
        )
        return Workshop(path.stem, str(plain["title"]), parts)
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise LessonError(f"{path} is no plan of a workshop: {error!r}; it has a title and [[part]]s.") from error


def workshop_slides(workshop: Workshop, lessons: Sequence[tuple[Lesson, list[Slide]]]) -> list[Slide]:
    """Return the slides of a workshop.

    Args:
        workshop: Its plan.
        lessons: Each part's lesson and slides, in the order of the plan.

    Raises:
        LessonError: If the plan names an exercise that the lesson does not have.
    """
    rows = []
    begin = 0
    for part, (lesson, _) in zip(workshop.parts, lessons, strict=True):
        rows.append(f"| {_clock(begin)} | {lesson.title} | {part.minutes} min | {', '.join(part.exercises)} |")
        begin += part.minutes
    plan = "\n".join(["### The plan", "", "| from | | | exercises |", "|---|---|---|---|", *rows])
    slides = [Slide("prose", f"# {workshop.title}"), Slide("prose", plan)]
    for part, (lesson, own) in zip(workshop.parts, lessons, strict=True):
        slides += _until_last(part, lesson, own)
    return slides


def _until_last(part: Part, lesson: Lesson, slides: list[Slide]) -> Iterable[Slide]:
    at = {slide.exercise: place for place, slide in enumerate(slides) if slide.exercise}
    missing = [each for each in part.exercises if each not in at]
    if missing:
        raise LessonError(f"{lesson.name} has no exercise {', '.join(missing)}; it has {', '.join(map(str, at))}.")
    last = max((at[each] for each in part.exercises), default=len(slides) - 1)
    following = next((place for each, place in at.items() if place > last), len(slides))
    return [slide for slide in slides[:following] if slide.exercise is None or slide.exercise in part.exercises]


def _clock(minutes: int) -> str:
    return f"{minutes // 60}:{minutes % 60:02}"
