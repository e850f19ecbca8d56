"""What a lesson's core takes a learner: minutes, words, given code, cells, exercises; and the most it may take.

The core ends where the bonus begins: at the heading above the first bonus exercise, or at one that begins with "Bonus".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from labkit.lessons.lesson import TASKS, Cell, Lesson
from labkit.lessons.student import student_cells

PROMISE = "[[minutes]]"
"""What an author writes in the lesson's head for the minutes it takes."""

WORDS_A_MINUTE = 180
LINES_A_MINUTE = 10
MINUTES_A_GUESS = 1.5
LIMITS = {"minutes": 100, "words": 1800, "code_lines": 80, "cells": 90, "exercises": 6}
_UNITS = {
    "minutes": "minutes",
    "words": "words of prose",
    "code_lines": "lines of given code",
    "cells": "cells",
    "exercises": "exercises",
}
TWO_SITTINGS = "in two sittings"
"""What the head of a lesson says that takes more than the limit, and where to stop in between."""
_NOT_READ = {*TASKS, "check", "predict"}
_WORD = re.compile(r"\w")


@dataclass(frozen=True)
class Budget:
    """What the core of a lesson holds.

    Attributes:
        words: Of prose.
        code_lines: Of given code and demonstrations, blank ones left out.
        cells: Of the student's notebook.
        exercises: All but questions after a reveal.
        questions: How many of those there are.
        guesses: How many there are.
        declared: Minutes that the exercises and questions declare.
        runs_s: Seconds that cells declare for their runs.
        bonus: Minutes that the bonus exercises declare, on top.
        is_last: Whether every exercise of the core stands above the first bonus.
        sittings: 2 where the head says "in two sittings"; each may take the limit's minutes.
    """

    words: int
    code_lines: int
    cells: int
    exercises: int
    questions: int
    guesses: int
    declared: int
    runs_s: int
    bonus: int
    is_last: bool
    sittings: int = 1

    @property
    def minutes(self) -> float:
        """How long the core takes."""
        reading = self.words / WORDS_A_MINUTE + self.code_lines / LINES_A_MINUTE
        return reading + self.guesses * MINUTES_A_GUESS + self.declared + self.runs_s / 60

    @property
    def promise(self) -> int:
        """The minutes that the lesson's head promises: the next multiple of five."""
        return 5 * math.ceil(round(self.minutes, 6) / 5)

    def __str__(self) -> str:
        """Return one line for the terminal."""
        parts = [f"{self.words:,} words", f"{self.code_lines} lines of given code", f"{self.cells} cells"]
        parts += [f"{self.exercises} exercises", f"{self.questions} questions", f"{self.guesses} guesses"]
        bonus = f"; bonus {self.bonus} min more" if self.bonus else ""
        return f"{self.minutes:.0f} min ({', '.join(parts)}{bonus})"

    def excesses(self) -> Iterator[str]:
        """Yield what is more than a lesson may hold, in words."""
        for name, most in LIMITS.items():
            value = getattr(self, name)
            most *= self.sittings if name == "minutes" else 1
            if value > most:
                yield f"its core has {value:,.4g} {_UNITS[name]}, and the limit is {most:,}"
        if not self.is_last:
            yield "a core exercise comes after a bonus exercise"


def budget(lesson: Lesson) -> Budget:
    """Return what the core of a lesson holds."""
    cells = student_cells(lesson)
    tasks = {exercise.id: exercise for exercise in lesson.exercises}
    bonus = [at for at, cell in enumerate(cells) if cell.role in TASKS and tasks[cell.exercise or ""].bonus]
    mine = [at for at, cell in enumerate(cells) if cell.role in TASKS and not tasks[cell.exercise or ""].bonus]
    is_last = not bonus or not mine or mine[-1] < bonus[0]
    titled = (at for at, cell in enumerate(cells) if cell.kind == "markdown" and "## Bonus" in cell.source)
    core = cells[: _heading_above(cells, bonus[0], mine)] if bonus and is_last else cells[: next(titled, len(cells))]
    inside = [exercise for exercise in lesson.exercises if not exercise.bonus]
    return Budget(
        words=sum(num_words(cell.student_source) for cell in core if cell.kind == "markdown" and cell.role != "write"),
        code_lines=sum(_num_lines(cell) for cell in core),
        cells=len(core),
        exercises=sum(each.kind != "why" for each in inside),
        questions=sum(each.kind == "why" for each in inside),
        guesses=sum(cell.role == "predict" for cell in core),
        declared=sum(each.minutes for each in inside),
        runs_s=sum(cell.seconds for cell in core),
        bonus=sum(each.minutes for each in lesson.exercises if each.bonus),
        is_last=is_last,
        sittings=2 if any(TWO_SITTINGS in cell.source for cell in core if cell.kind == "markdown") else 1,
    )


def promised(lesson: Lesson) -> Lesson:
    """Return the lesson with its minutes where the head has PROMISE."""
    if not any(PROMISE in cell.source for cell in lesson.cells if cell.kind == "markdown"):
        return lesson
    number = str(budget(lesson).promise)
    cells = [
        replace(
            cell,
            source=cell.source.replace(PROMISE, number),
            student_source=cell.student_source.replace(PROMISE, number),
        )
        if cell.kind == "markdown"
        else cell
        for cell in lesson.cells
    ]
    return replace(lesson, cells=tuple(cells))


def keeps_its_promise(lesson: Lesson) -> bool:
    """Return whether the lesson's prose says how many minutes it takes."""
    says = f"{budget(lesson).promise} minutes"
    return any(says in cell.source for cell in lesson.cells if cell.kind == "markdown")


def num_words(text: str) -> int:
    """Return how many words a piece of Markdown has; marks that stand by themselves are none."""
    return sum(bool(_WORD.search(word)) for word in text.split())


def _num_lines(cell: Cell) -> int:
    if cell.kind != "code" or cell.role in _NOT_READ:
        return 0
    return sum(bool(line.strip()) for line in cell.student_source.split("\n"))


def _heading_above(cells: Sequence[Cell], at: int, others: Sequence[int]) -> int:
    """Return the position of the last prose above a cell, and below the others, that begins a section."""
    above = (place for place in range(at - 1, max(others, default=-1), -1) if cells[place].kind == "markdown")
    return next((place for place in above if re.search(r"^#{1,4} ", cells[place].source, re.M)), at)
