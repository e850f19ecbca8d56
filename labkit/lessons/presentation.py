"""A lesson as a talk: what stands on each slide, and what its speaker says.

Nothing is written twice. Cells tagged ``slide`` or ``slide-only`` are slides; so is every picture of the executed
solution and every exercise, with its minutes. A figure that waits for a guess has its question on a slide of its own
before it; a guess without a figure is none, nor is a picture too fine for a room (``no-slide``). The prose between two
slides is the notes of the first.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from labkit.checks.predictions import with_unit
from labkit.errors import LessonError
from labkit.lessons.code import predicted_name
from labkit.lessons.exercise_slides import task_of, told_of
from labkit.lessons.lesson import TASKS, Lesson
from labkit.lessons.outputs_now import as_drawn_now
from labkit.lessons.room_guesses import histogram
from labkit.lessons.room_questions import ask_with_first_frame, to_be_found
from labkit.widgets import deck_data
from labkit.words import plainly

DRAWN = "labkit-figure"
CLOSING = ("## What to remember", "## What stays")
_NUMBER = re.compile(r"^(Exercise \d+\.\d+:?|\d+) +")
_CALLED = re.compile(r"<!-- called: (.+), (.+) -->")
_SIZE = re.compile(r"\d+ (of \d+ )?ranks?\b")
_COMPARED = re.compile(r"[\d.]+ times (?P<how>faster|as long)\b(?:.*mostly because (?P<why>.+))?")
_MOSTLY = re.compile(r"(?<=; the others )wait ([5-9]\d|100) % of the time$")
_OPENING = "Before you begin: `labkit doctor` on every machine, `labkit board` on yours, the class link on the wall."
_BOARD = "`labkit board` prints the link. Put its page on the wall if the room agrees."
_CLOSING = "Ask what was hardest; the board shows where the room was stuck longest. Say how to hand in."
_PACE = """The minutes are for the room. Every exercise has a slide with its minutes: leave it up
while the room works. Whoever is behind runs `labkit catch-up` and goes on with the others."""


@dataclass
class Slide:
    """One slide.

    Attributes:
        kind: "prose" (Markdown), "figure" (HTML of an output) or "exercise" (Markdown: what to do, how long).
        body: What it shows.
        exercise: The exercise of an "exercise" slide.
        title: The heading a "figure" stands under; beside what came out, where it answers a question.
        asks: What the room is asked while it sees the "figure", in Markdown; or "".
        question: What the room guesses before the "figure" is shown, on a slide of its own; or "".
        answer: What came out, shown with it.
        compared: How two runs compare by the answer: "faster" after "3.5 times"; or "".
        room: What a room guessed, as an SVG shown with the answer, or "".
        minutes: What its countdown begins with, of an exercise or a break; 0 for none.
        runs: Of a "figure" that is a timeline, what its live form is made of (labkit.widgets.deck_data), else "".
        notes: Markdown for the speaker.
    """

    kind: Literal["prose", "figure", "exercise"]
    body: str
    exercise: str | None = None
    title: str = ""
    asks: str = ""
    question: str = ""
    answer: str = ""
    compared: str = ""
    room: str = ""
    runs: str = ""
    minutes: int = 0
    notes: list[str] = field(default_factory=list)


def lesson_slides(lesson: Lesson, shown: Any, guesses: Mapping[str, Sequence[Any]] | None = None) -> list[Slide]:
    """Return the slides of a lesson; the first one is its title.

    Args:
        lesson: The lesson, from its source.
        shown: Its notebook with outputs and without answers (labkit.lessons.shown).
        guesses: What a room has guessed, by prediction.
    """
    outputs = {cell.id: cell.outputs for cell in shown.cells if cell.cell_type == "code"}
    slides: list[Slide] = []
    asked: dict[str, str] = {}
    called: dict[str, str] = {}
    heading = prose = ""
    for cell in lesson.cells:
        if cell.role == "stop":  # a room stops when its instructor says so
            continue
        if cell.kind == "markdown" and cell.role not in (*TASKS, "slide-only"):  # where one answers, nothing is asked
            prose = cell.student_source
            heading = re.findall(r"^#+ (.+)$", f"# {heading}\n{prose}", re.M)[-1]
        if cell.role in TASKS and cell.exercise:
            minutes = next(each.minutes for each in lesson.exercises if each.id == cell.exercise)
            task = task_of(lesson, cell, prose)
            slides.append(Slide("exercise", task, cell.exercise, minutes=minutes, notes=told_of(cell)))
        elif cell.kind == "markdown" and {"slide", "slide-only"} & set(cell.tags):
            slides.append(Slide("prose", cell.student_source))
            called |= dict(_CALLED.findall(cell.student_source))
        elif cell.kind == "markdown" and slides:
            slides[-1].notes.append(cell.student_source)
        elif cell.role == "predict":
            asked[predicted_name(cell.source)] = _question(prose)
        elif cell.role not in ("check", "solution") and "no-slide" not in cell.tags:
            drawn = (_drawn(output, heading, asked, guesses or {}) for output in outputs.get(cell.id, ()))
            shown_here = [_as_called(slide, called) for slide in drawn if slide]
            for asks in lesson.exercises:
                if f'labkit.recorded("{asks.id}"' in cell.source:  # what it shows is for the room to find
                    shown_here = to_be_found(asks.title, slides, shown_here)
            ask_with_first_frame(slides, shown_here)
            slides += shown_here
    return slides


def _as_called(slide: Slide, called: Mapping[str, str]) -> Slide:
    """Return the slide of an explorer with other names for what it compares: in a deck "yours" has no owner."""
    if not called:
        return slide
    body = re.sub(r'(?<="name":")[^"\\]+(?=")', lambda found: called.get(found[0], found[0]), slide.body)
    return replace(slide, body=body)


def closing_last(slides: Sequence[Slide]) -> list[Slide]:
    """Return a lesson's slides so that it ends with what to remember, and not with a bonus that few come to."""
    closing = [slide for slide in slides if slide.kind == "prose" and slide.body.startswith(CLOSING)]
    return [*(slide for slide in slides if slide not in closing), *closing]


def _question(prose: str) -> str:
    """Return the last question in bold type of the prose above a guess."""
    bold = re.findall(r"\*\*([^*]+\?)\*\*", prose)
    return " ".join(bold[-1].split()) if bold else ""


def _drawn(output: Any, title: str, asked: Mapping[str, str], guesses: Mapping[str, Sequence[Any]]) -> Slide | None:
    """Return the slide of an output's picture, timeline or explorer; None for text, and for a guess without a figure.

    Args:
        output: Of a cell.
        title: The heading it stands under.
        asked: The question of each guess so far, by prediction.
        guesses: What a room has guessed, by prediction.
    """
    data = output.get("data", {})
    sentence = str(data.get("text/plain", ""))
    about = output.get("metadata", {}).get("labkit", {})
    title = _NUMBER.sub("", title)
    question = answer = compared = room = ""
    if "prediction" in about:
        sentence = sentence.partition("\n")[2]
        if not sentence:  # no figure waited for this guess
            return None
        # The guess in the executed lesson is its author's; a room has its own.
        answer = _came_out(about["result"], about.get("unit", ""))
        question = asked.get(about["prediction"], "")
        said = guesses.get(about["prediction"])
        room = histogram(said, about["result"]) if said else ""
    # What a figure says of itself helps whoever stands before it; matplotlib's says only its size.
    notes = [] if sentence.startswith("<") else [sentence.replace("\n", "\n\n")]
    if DRAWN in data.get("text/html", ""):
        html = str(data["text/html"])
        figure = _no_section(as_drawn_now(html[html.index("<div") :]))
        return Slide("figure", figure, title=title, question=question, answer=answer, room=room, notes=notes)
    if "image/png" in data:
        picture = "".join(data["image/png"].split())
        html = f'<img src="data:image/png;base64,{picture}" alt="{_attribute(sentence.partition(chr(10))[0])}">'
        runs = deck_data.runs(output.get("metadata", {})) or ""
        title = _claim(runs, sentence) or title
        if question and (
            beside := _COMPARED.search(title)
        ):  # the number is the answer's, and what it means stands by it
            title, compared = _told_apart(title, beside["why"]), beside["how"]
        elif question:
            title = re.split("[;,] ", title)[0]  # a number stands beside it
        if not runs and sentence and notes:  # a timeline too long to be live: its still is too small to read in a room
            html = f'<p class="words">{_attribute(sentence)}</p>'
        return Slide(
            "figure", html, title=title, question=question, answer=answer, compared=compared, room=room, runs=runs,
            notes=notes,
        )  # fmt: skip
    return None


def _told_apart(claim: str, why: str | None) -> str:
    """Return of which of two runs a comparison speaks, and why it is so: "Eight ranks: bytes queue at rank 0"."""
    named = re.match("“([^”]+)”", claim)
    title = f"{named[1]}: {why}" if named and why else claim
    return title[:1].upper() + title[1:]


def _came_out(result: Any, unit: str) -> str:
    """Return what came out as a room reads it: a factor with the digits that the title of a comparison has."""
    if unit == "times" and isinstance(result, float) and abs(result) >= 1.95:
        result = float(f"{result:.2g}")
    return with_unit(result, unit)


def _claim(runs: str, sentence: str) -> str:
    """Return what a timeline shows, in its own words; of two how much faster one is; "" of one that only has a size."""
    shown = json.loads(runs) if runs else []
    if len(shown) > 1:
        claim = sentence.rstrip().rpartition("\n")[2].removesuffix(".")
        return claim[:1].upper() + claim[1:]
    title = str(shown[0]["title"]).removeprefix("The pipeline's bubble: ") if shown else ""
    title = _MOSTLY.sub("mostly wait", title[:1].upper() + title[1:])  # in one line
    return "" if _SIZE.match(title) else title


def _no_section(html: str) -> str:
    """Return a figure with a <div> where it was written with a <section>, which reveal.js takes for a slide."""
    return html.replace('<section class="lk"', '<div class="lk"').replace("</section>", "</div>")


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


@dataclass(frozen=True)
class Part:
    """A part of a workshop: a lesson up to its last exercise named here, or a break.

    Attributes:
        lesson: Its number; "" for a break.
        minutes: How long it takes in the room.
        exercises: Those the room does, by slug; the others stay for home.
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

    A part without a lesson is a break. A lesson in two parts goes on in the second where the first stopped.

    Raises:
        LessonError: If the file is no such plan.
    """
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
        parts = tuple(
            Part(str(part.get("lesson", "")), int(part["minutes"]), tuple(map(str, part.get("exercises", ()))))
            for part in plain["part"]
        )
        return Workshop(path.stem, str(plain["title"]), parts)
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise LessonError(
            f"{path} is not a workshop's plan ({plainly(error)}); a plan has a title and [[part]] tables."
        ) from error


def workshop_slides(workshop: Workshop, lessons: Sequence[tuple[Lesson, list[Slide]]], link: str = "") -> list[Slide]:
    """Return the slides of a workshop: title, how to join, the plan, its parts with their breaks, an end.

    Args:
        workshop: Its plan.
        lessons: The lesson and slides of each part that is no break, in the order of the plan.
        link: The class link that the slide shows; "" to have the room read it from the board.

    Raises:
        LessonError: If the plan names an exercise that the lesson does not have.
    """
    rows, parts = [], iter(lessons)
    begin, shown, body = 0, dict[str, int](), list[Slide]()
    for part in workshop.parts:
        if not part.lesson:
            rows.append(f"| {_clock(begin)} | Break | {part.minutes} min | |")
            body.append(Slide("exercise", f"### Break until {_clock(begin + part.minutes)}", minutes=part.minutes))
        else:
            lesson, own = next(parts)
            numbers = ", ".join(map(lesson.manifest.number, part.exercises))
            rows.append(f"| {_clock(begin)} | {lesson.title} | {part.minutes} min | {numbers} |")
            until = _until_last(part, lesson, own)
            body += [slide for slide in own[shown.get(part.lesson, 0) : until] if _is_shown(slide, part)]
            shown[part.lesson] = until
        begin += part.minutes
    plan = "\n".join(["### The plan", "", "| from | what | takes | exercises |", "|---|---|---|---|", *rows])
    done = {each for part in workshop.parts for each in part.exercises}
    opening = [
        Slide("prose", f"# {workshop.title}", notes=[_OPENING]),
        Slide("prose", _join(link), notes=[_BOARD]),
        Slide("prose", plan, notes=[_PACE]),
    ]
    return [*opening, *body, Slide("prose", _end(lessons, done), notes=[_CLOSING])]


def _join(link: str) -> str:
    where = f'"{link}"' if link else '"THE LINK ON THE WALL"'
    return (
        "### Join the class board\n\nIn a notebook, once:\n\n"
        f'```python\nlabkit.join_class(\n    {where},\n    "a nickname",\n)\n```\n\n'
        "Stuck? `labkit.i_need_help()`. Finished? `labkit.i_am_done()`."
    )


def _end(lessons: Sequence[tuple[Lesson, list[Slide]]], done: set[str]) -> str:
    rest = []
    for title, manifest in {lesson.title: lesson.manifest for lesson, _ in lessons}.items():
        numbers = [each.number for each in manifest.exercises if each.id not in done]
        rest += [f"* {title}: {', '.join(numbers)}"] if numbers else []
    last = "Save your notebooks. `labkit.leave_class()`."
    return "\n".join(["### That was it", "", "For home:", "", *rest, "", last])


def _is_shown(slide: Slide, part: Part) -> bool:
    return slide.exercise is None or slide.exercise in part.exercises


def _until_last(part: Part, lesson: Lesson, slides: list[Slide]) -> int:
    """Return where a part ends: before the first exercise behind its last one."""
    at = {slide.exercise: place for place, slide in enumerate(slides) if slide.exercise}
    missing = [each for each in part.exercises if each not in at]
    if missing:
        raise LessonError(f"{lesson.name} has no exercise {', '.join(missing)}; it has {', '.join(map(str, at))}.")
    last = max((at[each] for each in part.exercises), default=len(slides) - 1)
    return next((place for each, place in at.items() if place > last), len(slides))


def _clock(minutes: int) -> str:
    return f"{minutes // 60}:{minutes % 60:02}"
