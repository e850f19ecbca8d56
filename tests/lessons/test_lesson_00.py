"""Lesson 00 keeps its contract, is short, and comes first."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from labkit.lessons.budget import budget
from labkit.lessons.source import Lesson
from tests.lessons.contract import LessonContract

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


class TestContract(LessonContract):
    number = "00"
    exercises = (
        "average",
        "never_heard",
        "who_waits",
        "who_am_i",
        "damaged",
    )
    bonus = ("who_am_i", "damaged")
    bonus_points = 14
    points = 20
    topics: ClassVar = {
        "three worlds": r"three worlds",
        "the first timeline": r"timeline",
        "a deadlock, read": r"deadlock",
        "stuck": r"labkit\.lend\(",
        "who is waiting": r"who is waiting\?[\s\S]*who is waiting, and for whom",
        "the post that does not run": r"the post that does not run",
        "where the post is mended": r"lesson 06",
        "the next lesson": r"the next question",
        "sources": r"### sources",
    }
    slides = (4, 25)

    def test_its_core_takes_half_an_hour(self, lesson: Lesson) -> None:
        assert budget(lesson).promise == 30

    def test_no_cell_is_over_long(self, lesson: Lesson) -> None:
        for cell in lesson.cells:
            assert len(cell.source.splitlines()) <= 32, f"line {cell.line}"


def test_it_is_the_first_notebook_that_make_lab_opens() -> None:
    assert sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))[0] == "00_start_here.ipynb"
