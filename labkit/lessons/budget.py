"""What a lesson's core takes a learner: minutes, words, given code, cells, exercises; and the most it may take.

The core ends where the bonus begins: at the heading above the first bonus exercise, or at one that begins with "Bonus".
A cell tagged ``stop`` divides it into sittings, and each of them keeps to the minutes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from labkit.lessons.lesson import TASKS, Cell, Lesson
from labkit.lessons.manifest import Exercise
from labkit.lessons.student import student_cells

PROMISE = "[[minutes]]"
"""What an author writes in the lesson's head for the minutes it takes, and in a ``stop`` for those that are left."""

WORDS_A_MINUTE = 180
LINES_A_MINUTE = 10
MINUTES_A_GUESS = 1.5
LIMITS = {"minutes": 75, "words": 1800, "code_lines": 80, "cells": 90, "exercises": 6}
_UNITS = {
    "minutes": "minutes",
    "words": "words of prose",
    "code_lines": "lines of given code",
    "cells": "cells",
    "exercises": "exercises",
}
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
        sittings: Minutes up to each ``stop``, and after the last; empty stands for one without a stop.
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
    sittings: tuple[float, ...] = ()

    @property
    def minutes(self) -> float:
        """How long the core takes."""
        reading = self.words / WORDS_A_MINUTE + self.code_lines / LINES_A_MINUTE
        return reading + self.guesses * MINUTES_A_GUESS + self.declared + self.runs_s / 60

    @property
    def promises(self) -> tuple[int, ...]:
        """The minutes that the lesson's head promises for each sitting: the next multiple of five."""
        return tuple(5 * math.ceil(round(each, 6) / 5) for each in self.sittings or (self.minutes,))

    @property
    def promise(self) -> str:
        """The same in words, "45" or "45 + 50"."""
        return " + ".join(map(str, self.promises))

    def __str__(self) -> str:
        """Return one line for the terminal."""
        parts = [f"{self.words:,} words", f"{self.code_lines} lines of given code", f"{self.cells} cells"]
        parts += [f"{self.exercises} exercises", f"{self.questions} questions", f"{self.guesses} guesses"]
        bonus = f"; bonus {self.bonus} min more" if self.bonus else ""
        sittings = " + ".join(f"{each:.0f}" for each in self.sittings or (self.minutes,))
        return f"{sittings} min ({', '.join(parts)}{bonus})"

    def excesses(self) -> Iterator[str]:
        """Yield what is more than a lesson may hold, in words."""
        for name, most in LIMITS.items():
            value = max(self.sittings or (self.minutes,)) if name == "minutes" else getattr(self, name)
            what = "a sitting" if name == "minutes" and self.sittings[1:] else "its core"
            if value > most:
                yield f"{what} has {value:,.4g} {_UNITS[name]}, and the limit is {most:,}"
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
    stops = [0, *(at for at, cell in enumerate(core) if cell.role == "stop"), len(core)]
    return replace(
        _counted(core, tasks),
        bonus=sum(each.minutes for each in lesson.exercises if each.bonus),
        is_last=is_last,
        sittings=tuple(_counted(core[start:end], tasks).minutes for start, end in pairwise(stops)),
    )


def promised(lesson: Lesson) -> Lesson:
    """Return the lesson with its minutes where the head has PROMISE, and in each ``stop`` those that are left."""
    if not any(PROMISE in cell.source for cell in lesson.cells if cell.kind == "markdown"):
        return lesson
    takes = budget(lesson)
    left = list(takes.promises)
    cells = []
    for cell in lesson.cells:
        if cell.role == "stop":
            left = left[1:]
        number = str(sum(left)) if cell.role == "stop" else takes.promise
        cells.append(
            replace(
                cell,
                source=cell.source.replace(PROMISE, number),
                student_source=cell.student_source.replace(PROMISE, number),
            )
            if cell.kind == "markdown"
            else cell
        )
    return replace(lesson, cells=tuple(cells))


def keeps_its_promise(lesson: Lesson) -> bool:
    """Return whether the lesson's prose says how many minutes it takes, and how many sittings those are."""
    takes = budget(lesson)
    says = [f"{takes.promise} minutes", *["sittings"][: len(takes.promises) - 1]]
    return any(all(each in cell.source for each in says) for cell in lesson.cells if cell.kind == "markdown")


def num_words(text: str) -> int:
    """Return how many words a piece of Markdown has; marks that stand by themselves are none."""
    return sum(bool(_WORD.search(word)) for word in text.split())


def _counted(cells: Sequence[Cell], tasks: Mapping[str, Exercise]) -> Budget:
    """Return what cells of a core hold. A ``stop`` is no prose: it is read by whoever stops."""
    given = [tasks[cell.exercise or ""] for cell in cells if cell.role in TASKS]
    inside = [exercise for exercise in given if not exercise.bonus]
    prose = [cell for cell in cells if cell.kind == "markdown" and cell.role not in ("write", "stop")]
    return Budget(
        words=sum(num_words(cell.student_source) for cell in prose),
        code_lines=sum(_num_lines(cell) for cell in cells),
        cells=len(cells),
        exercises=sum(each.kind != "why" for each in inside),
        questions=sum(each.kind == "why" for each in inside),
        guesses=sum(cell.role == "predict" for cell in cells),
        declared=sum(each.minutes for each in inside),
        runs_s=sum(cell.seconds for cell in cells),
        bonus=0,
        is_last=True,
    )


def _num_lines(cell: Cell) -> int:
    if cell.kind != "code" or cell.role in _NOT_READ:
        return 0
    return sum(bool(line.strip()) for line in cell.student_source.split("\n"))


def _heading_above(cells: Sequence[Cell], at: int, others: Sequence[int]) -> int:
    """Return the position of the last prose above a cell, and below the others, that begins a section."""
    above = (place for place in range(at - 1, max(others, default=-1), -1) if cells[place].kind == "markdown")
    return next((place for place in above if re.search(r"^#{1,4} ", cells[place].source, re.M)), at)
