"""Lesson 00 is short, complete, and what it says of the post is what the post does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from labkit.lessons.source import Lesson, load

SOURCE = Path(__file__).parents[2] / "solutions" / "00_start_here.py"


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


def test_it_takes_twenty_minutes_at_most(lesson: Lesson) -> None:
    assert [exercise.id for exercise in lesson.exercises] == ["0.1", "0.2", "0.3", "0.4"]
    assert sum(exercise.minutes for exercise in lesson.exercises) <= 14, "the rest is reading and running"


def test_points_and_minutes_in_the_text_are_those_of_the_exercises(lesson: Lesson) -> None:
    text = "\n".join(cell.source for cell in lesson.cells if cell.kind == "markdown")
    for exercise in lesson.exercises:
        said = re.search(
            rf"### Exercise {re.escape(exercise.id)} (.+)\n#?\n?\*(\d+) points, about (\d+) minutes\*", text
        )
        assert said, exercise.id
        assert (said[1], int(said[2]), int(said[3])) == (exercise.title, exercise.points, exercise.minutes)


def test_no_cell_is_over_long(lesson: Lesson) -> None:
    for cell in lesson.cells:
        assert len(cell.source.splitlines()) <= 32, f"line {cell.line}"


def test_it_is_the_first_notebook_that_make_lab_opens() -> None:
    notebooks = sorted(path.name for path in (SOURCE.parents[1] / "notebooks").glob("*.ipynb"))
    assert notebooks[0] == "00_start_here.ipynb"
