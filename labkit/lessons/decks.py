"""``labkit slides``: a deck for each lesson, and one for a workshop that goes through several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from labkit.lessons.class_course import class_course
from labkit.lessons.course import find_course, select, source_files
from labkit.lessons.lesson import Lesson
from labkit.lessons.presentation import Slide, closing_last, lesson_slides, read_workshop, workshop_slides
from labkit.lessons.reveal import write_deck, write_pdf
from labkit.lessons.room_guesses import guesses_on
from labkit.lessons.shown import shown_notebook
from labkit.lessons.source import load
from labkit.progress import Told, untold


def write_decks(
    lessons: Sequence[str], workshops: Sequence[Path], folder: Path, *, course: Path | None, browser: str | None,
    say: Callable[[str], None], link: str = "", public: bool = False, told: Told = untold, board: Path | None = None,
) -> list[Path]:  # fmt: skip
    """Return the files written.

    Args:
        lessons: Numbers or names.
        workshops: Plans of workshops (labkit.lessons.presentation.read_workshop). With neither lessons nor workshops,
            everything: all lessons, and the plans in docs/workshops/.
        folder: Where decks go.
        course: Somewhere in the course; None is the working directory.
        browser: A Chromium that prints each deck as PDF too; None for no PDF.
        say: Told each file.
        link: The class link, for the slide of a workshop that says how to join.
        public: Show the recordings that come with labkit, also where the course has others for its class.
        told: Told each deck and each PDF before it is made.
        board: The file of a class board, whose guesses stand beside what came out.

    Raises:
        LessonError: If a lesson is not there or not executed, or a plan is wrong.
        EnvironmentProblem: If what slides need is not installed.
    """
    guesses = guesses_on(board) if board is not None else {}
    root = find_course(course, sources=True)
    sources = source_files(root)
    chosen = [select(sources, each) for each in lessons]
    if not lessons and not workshops:
        chosen, workshops = sources, sorted((root / "docs" / "workshops").glob("*.toml"))
    num_decks = len(chosen) + len(workshops)
    total = num_decks * (2 if browser else 1)
    plans = [read_workshop(path) for path in workshops]
    shown = [*chosen, *(select(sources, part.lesson) for plan in plans for part in plan.parts if part.lesson)]
    decks: list[Path] = []
    with nullcontext(root) if public else class_course(root, set(shown), told) as seen:
        for source in chosen:
            told(source.stem, len(decks), total)
            lesson, slides = _read(source, seen, guesses)
            decks.append(write_deck(closing_last(slides), lesson.title, lesson.name, folder))
        for plan in plans:
            told(plan.name, len(decks), total)
            parts = [_read(select(sources, part.lesson), seen, guesses) for part in plan.parts if part.lesson]
            decks.append(write_deck(workshop_slides(plan, parts, link), plan.title, plan.name, folder))
    written = []
    for number, deck in enumerate(decks):
        told(deck.stem, num_decks + number if browser else total, total)
        for made in (deck, *([write_pdf(deck, browser)] if browser else [])):
            say(str(made))
            written.append(made)
    return written


def _read(source: Path, seen: Path, guesses: Mapping[str, Sequence[Any]]) -> tuple[Lesson, list[Slide]]:
    lesson = load(source)
    return lesson, lesson_slides(lesson, shown_notebook(lesson, seen / "solutions" / f"{lesson.name}.ipynb"), guesses)
