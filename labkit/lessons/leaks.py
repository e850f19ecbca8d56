"""Looking for cut answers in what learners get: notebooks and slides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from labkit.lessons.lesson import Lesson
from labkit.lessons.student import student_cells

_LEAST_LETTERS = 16
_LEAST_LETTERS_ELSEWHERE = 32


@dataclass(frozen=True)
class Passage:
    """A piece of text that learners get.

    Attributes:
        file: Where it stands, relative to the course.
        cell: The cell's id, or None for a file without cells.
        text: What it says.
    """

    file: str
    cell: str | None
    text: str


@dataclass(frozen=True)
class Leak:
    """A line of an answer that learners can read, and where."""

    passage: Passage
    owner: str
    line: str


@dataclass(frozen=True)
class _Answer:
    owner: str
    place: str
    lines: frozenset[str]


def find_leaks(lesson: Lesson, passages: Sequence[Passage]) -> list[Leak]:
    """Return where passages hold text of a lesson's answers: its cuts and its ``solution`` cells.

    A line counts once it has 16 letters or digits. What the learner's notebook shows above the exercise is taught
    there, and alone gives nothing away; more than half of an answer's lines in one passage always do. Other lessons
    give an answer away with a line of 32 letters, or with two lines that are more than half of it: shorter ones
    (``optimizer.zero_grad()``) stand in every program. (That answers are gone from the notebook holds by construction;
    this finds what an author left in prose, demonstrations or slides.)

    Args:
        lesson: Whose answers must not be seen.
        passages: All cells and slides learners get, of any lesson, in reading order.
    """
    return [leak for answer in _answers(lesson) for leak in _leaks_of(answer, lesson, passages)]


def _leaks_of(answer: _Answer, lesson: Lesson, passages: Sequence[Passage]) -> Iterator[Leak]:
    above = _lines_above(lesson, answer.place)
    for passage in passages:
        shown = _lines(passage.text)
        found = answer.lines & shown
        if not found:
            continue
        most = len(found) * 2 > len(answer.lines)
        telling = found - above
        if Path(passage.file).stem != lesson.name:
            telling = frozenset(line for line in telling if _num_letters(line) >= _LEAST_LETTERS_ELSEWHERE)
            most = most and len(found) > 1
        if telling or most:
            yield Leak(passage, answer.owner, min(telling or found))


def _answers(lesson: Lesson) -> Iterator[_Answer]:
    for cell in lesson.cells:
        for each in cell.cuts:
            if lines := _lines("\n".join(each.lines)):
                yield _Answer(f"exercise {each.exercise}", cell.id, lines)
        if cell.role == "solution" and (lines := _lines(cell.source)):
            yield _Answer(f"the solution cell at line {cell.line}", cell.id, lines)


def _lines_above(lesson: Lesson, place: str) -> frozenset[str]:
    above: frozenset[str] = frozenset()
    cells = student_cells(lesson)
    positions = {cell.id: at for at, cell in enumerate(lesson.cells)}
    for cell in cells:
        if positions[cell.id] < positions[place]:
            above |= _lines(cell.student_source)
    return above


@cache  # each passage is held against the answers of every lesson
def _lines(text: str) -> frozenset[str]:
    """Return the lines that say something, without indentation and with single spaces."""
    squeezed = (re.sub(r"\s+", " ", line).strip() for line in text.split("\n"))
    return frozenset(line for line in squeezed if _num_letters(line) >= _LEAST_LETTERS)


def _num_letters(line: str) -> int:
    return len(re.findall(r"\w", line))
