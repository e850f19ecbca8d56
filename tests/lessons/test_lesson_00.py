"""Lesson 00 keeps its contract, is short, and comes first."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from labkit.lessons.source import Lesson
from tests.lessons.contract import LessonContract

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


class TestContract(LessonContract):
    number = "00"
    exercises = (
        "average",
        "who_am_i",
        "damaged",
        "never_heard",
        "who_waits",
    )
    bonus = ()
    bonus_points = 0
    points = 34
    topics: ClassVar = {
        "three worlds": r"three worlds",
        "the first timeline": r"timeline",
        "a deadlock, read": r"deadlock",
        "who is waiting": r"who is waiting, and for whom",
        "the post that does not run": r"the post that does not run",
        "where the post is mended": r"lesson 06",
    }
    slides = (4, 25)

    def test_its_exercises_take_a_quarter_of_an_hour_or_little_more(self, lesson: Lesson) -> None:
        assert sum(exercise.minutes for exercise in lesson.exercises) <= 18, "the rest is reading and running"

    def test_no_cell_is_over_long(self, lesson: Lesson) -> None:
        for cell in lesson.cells:
            assert len(cell.source.splitlines()) <= 32, f"line {cell.line}"


def test_it_is_the_first_notebook_that_make_lab_opens() -> None:
    assert sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))[0] == "00_start_here.ipynb"
