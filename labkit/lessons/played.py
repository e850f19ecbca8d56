"""A lesson as a page that needs no installation: prose, guesses, questions, and recorded runs, which play.

Nothing is written for it. Prose and questions are the lesson's source, figures and numbers those of the executed
solution, and what an answer is told is the exercise's key. A guess is compared and an answer is judged in the page.
Programs of exercises are not in it: the page says what one builds there, and the notebook is where one does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from labkit.checks.predictions import with_unit
from labkit.checks.question import KEY, QUESTION, read_key, read_question
from labkit.checks.rooms import LABKIT
from labkit.errors import LessonError
from labkit.lessons.code import predicted_name
from labkit.lessons.lesson import Cell, Lesson
from labkit.lessons.presentation import DRAWN
from labkit.lessons.reveal import as_html
from labkit.lessons.shown import shown_notebook
from labkit.lessons.source import load
from labkit.widgets import deck_data
from labkit.widgets.timeline_view import program, style

LESSONS = ("00", "02", "04", "08")
"""The lessons that have such a page."""
MOST_BYTES = 1_000_000
_CORE_ENDS = "## Bonus"


@dataclass
class Block:
    """One piece of the page.

    Attributes:
        kind: "prose", "code", "task", "guess", "shown" or "question".
        html: What it shows.
        name: Of a guess: its name; of a question: its slug.
        data: What the page's program needs, as plain data.
        text: Of what is shown: its words.
        runs: Of what is shown: the timelines, for ``showPage``; "" where there are none.
    """

    kind: str
    html: str = ""
    name: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    runs: str = ""


def played_page(source: Path, *, judged: bool = True) -> str:
    """Return a lesson's page: one file, which opens without a server or a network.

    Args:
        source: The lesson's source, beside its executed notebook.
        judged: Whether answers to its questions are judged, for which the page holds their keys. Not for a class that
            gets points for them.

    Raises:
        LessonError: If the lesson was not executed, or its page has more than a megabyte.
    """
    lesson = load(source)
    shown = shown_notebook(lesson, source.with_suffix(".ipynb"))
    blocks = list(_blocks(lesson, {cell.id: cell for cell in shown.cells}, judged))
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    templates.filters["for_script"] = lambda data: Markup(json.dumps(data).replace("<", "\\u003c"))
    page = templates.get_template("played.html").render(
        lesson=lesson, blocks=blocks, style=Markup(style()), program=Markup(program()),
        own=Markup(Path(__file__).with_name("played.js").read_text(encoding="utf-8")),
    )  # fmt: skip
    if len(page.encode()) > MOST_BYTES:
        raise LessonError(
            f"the page of {lesson.name} has {len(page.encode()):,} bytes, and at most {MOST_BYTES:,} are loaded on a "
            "phone in good time; let the lesson keep smaller timelines."
        )
    return page


def write_played(course: Path, folder: Path, *, judged: bool = True) -> list[Path]:
    """Write the page of each lesson that has one, and return their paths; `judged` as `played_page` has it."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number in LESSONS:
        (source,) = (course / "solutions").glob(f"{number}_*.py")
        written.append(folder / f"{source.stem}.html")
        written[-1].write_text(played_page(source, judged=judged), encoding="utf-8")
    return written


def _blocks(lesson: Lesson, shown: dict[str, Any], judged: bool) -> Iterator[Block]:
    """Yield the pieces of the lesson's core."""
    for cell in lesson.cells:
        if cell.kind == "markdown":
            if cell.student_source.startswith(_CORE_ENDS):
                return
            if cell.role not in ("slide-only", "stop", "write"):
                yield Block("prose", Markup(as_html(_without_ends(cell.student_source))))
        elif cell.role == "predict":
            yield Block("guess", name=predicted_name(cell.source))
        elif cell.role in ("find", "why"):
            yield _question(cell, judged)
        elif cell.is_code_exercise:
            yield _task(lesson, cell)
        elif cell.role not in ("check", "solution", "slide-only", "parameters"):
            yield Block("code", Markup(as_html(f"```python\n{cell.student_source}\n```")))
            for output in shown[cell.id].outputs:
                yield _shown(output)


def _without_ends(prose: str) -> str:
    """Return prose without the lines that speak of an exercise's points."""
    return "\n".join(line for line in prose.split("\n") if not ("points, about" in line and "difficulty" in line))


def _task(lesson: Lesson, cell: Cell) -> Block:
    exercise = next(each for each in lesson.exercises if each.id == cell.exercise)
    built = ", ".join(f"`{name}`" for name in exercise.provides)
    words = f"In the notebook you write {built} here, and a check says what is right and what is not."
    return Block("task", Markup(as_html(words)))


def _question(cell: Cell, judged: bool) -> Block:
    assert cell.exercise is not None
    (folder,) = (path for place in import_module(LABKIT).__path__ for path in Path(place).glob(f"*/{cell.exercise}"))
    question = read_question(folder / QUESTION)
    if not judged:
        return Block("task", Markup(as_html(f"{question.asks}\n\nYou answer this in the notebook.")))
    key = read_key(folder / KEY)
    fields = {
        name: {"asks": each.asks, "choices": list(each.choices), "unit": each.unit}
        for name, each in question.fields.items()
    }
    data = {
        "kind": question.kind, "fields": fields, "answers": dict(key.answers), "within": dict(key.within),
        "reason": key.reason, "hints": [{"when": dict(when), "says": says} for when, says in key.hints],
    }  # fmt: skip
    return Block("question", Markup(as_html(question.asks)), name=cell.exercise, data=data)


def _shown(output: Any) -> Block:
    """Return what a cell put out: its words, and its figure or timeline."""
    about = output.get("metadata", {}).get("labkit", {})
    bundle = output.get("data", {})
    text = str(output.get("text", "") or bundle.get("text/plain", ""))
    data: dict[str, Any] = {}
    if "prediction" in about:
        text = text.partition("\n")[2]  # its first line compares with the guess of whoever executed the lesson
        unit = about.get("unit", "")
        data = {"result": about["result"], "unit": unit, "told": with_unit(about["result"], unit)}
    html = str(bundle.get("text/html", ""))
    figure = html if DRAWN in html else ""
    runs = deck_data.runs(output.get("metadata", {})) or ""
    if not figure and not runs and "image/png" in bundle:
        picture = "".join(bundle["image/png"].split())
        figure = f'<img alt="" src="data:image/png;base64,{picture}">'
    if text.startswith("<"):  # what matplotlib says of itself
        text = ""
    return Block("shown", Markup(figure), name=about.get("prediction", ""), data=data, text=text.strip(), runs=runs)
