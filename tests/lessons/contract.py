"""What every lesson's source keeps: exercises, points, checks, headings, topics, guesses, slides."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from unittest.mock import MagicMock

import pytest

from labkit.checks.rooms import exercises as checked_exercises
from labkit.lessons.budget import budget
from labkit.lessons.needs import needs_of
from labkit.lessons.source import Lesson
from tests.checks.lesson_cells import lesson as source_of
from tests.checks.lesson_cells import namespace


class LessonContract:
    """The contract of one lesson; test_lesson_NN.py makes a class of it and adds what only its lesson promises.

    Attributes:
        number: The lesson's.
        points: What its exercises give together, the bonus apart.
        topics: What the lesson must speak of: a name, and a pattern its text in lower case matches somewhere.
        slides: The least and the most slides of the deck.
        least_guesses: How many predictions there are at least.
    """

    number: ClassVar[str]
    points: ClassVar[int] = 100
    topics: ClassVar[Mapping[str, str]]
    slides: ClassVar[tuple[int, int]] = (8, 25)
    least_guesses: ClassVar[int] = 1

    @pytest.fixture
    def lesson(self) -> Lesson:
        return source_of(self.number)

    def test_the_core_gives_its_points_and_the_bonus_comes_after_it(self, lesson: Lesson) -> None:
        core = [exercise for exercise in lesson.exercises if not exercise.bonus]
        assert sum(exercise.points for exercise in core) == self.points
        assert list(lesson.exercises[: len(core)]) == core

    def test_the_core_takes_no_longer_than_a_lesson_may(self, lesson: Lesson) -> None:
        assert not list(budget(lesson).excesses())

    def test_every_exercise_is_followed_by_its_check_before_the_next(self, lesson: Lesson) -> None:
        cells = [cell for cell in lesson.cells if cell.is_code_exercise or cell.role == "check"]
        order = [(cell.is_code_exercise, cell.exercise) for cell in cells]
        code = [each.id for each in lesson.exercises if each.is_code]
        assert order == [(is_exercise, each) for each in code for is_exercise in (True, False)]

    def test_lesson_and_checks_name_the_same_functions(self, lesson: Lesson) -> None:
        checked = checked_exercises(source_of(self.number).name)
        assert {each: checked[each].functions for each in checked} == {
            each.id: each.provides for each in lesson.exercises if each.is_code
        }

    def test_an_exercise_needs_what_its_answer_uses(self, lesson: Lesson) -> None:
        called_with = {each: checked.given for each, checked in checked_exercises(source_of(self.number).name).items()}
        assert {each.id: each.needs for each in lesson.exercises if each.is_code} == needs_of(lesson, called_with)

    def test_numbers_are_positions(self, lesson: Lesson) -> None:
        numbers = [f"{int(self.number)}.{position}" for position in range(1, len(lesson.exercises) + 1)]
        assert [each.number for each in lesson.exercises] == numbers

    def test_headings_say_title_points_minutes_difficulty_and_importance(self, lesson: Lesson) -> None:
        prose = "\n\n".join(cell.source for cell in lesson.cells if cell.kind == "markdown")
        for each in filter(lambda exercise: exercise.points, lesson.exercises):
            bonus = " (bonus)" if each.bonus else ""
            heading = rf"### Exercise {re.escape(each.name)}{re.escape(bonus)}\n\n"
            worth = f"*{each.points} points, about {each.minutes} minutes; "
            said = f"{worth}difficulty {each.difficulty} of 5, importance {each.importance} of 5*"
            assert re.search(heading + re.escape(said), prose.replace("`", "")), each.id

    def test_every_stub_fails_with_the_words_of_its_own_exercise(self, lesson: Lesson) -> None:
        stubs = namespace(solved=False, number=self.number)
        for exercise in lesson.exercises:
            words = f"Exercise {exercise.number}: {exercise.title}"
            for name in exercise.provides:
                gaps = _gaps(stubs[name])
                assert gaps, f"{name} is handed out with nothing left to write"
                for gap in gaps:
                    asked = inspect.signature(gap).parameters.values()
                    required = [p for p in asked if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
                    given = [_blank(stubs[name]) if each.name == "self" else MagicMock() for each in required]
                    with pytest.raises(NotImplementedError, match=f"^{re.escape(words)}$"):
                        next(gap(*given))  # a generator begins when it is asked

    def test_every_topic_is_there(self, lesson: Lesson) -> None:
        text = re.sub(r"\s+", " ", "\n\n".join(cell.source for cell in lesson.cells)).lower()
        missing = [topic for topic, pattern in self.topics.items() if not re.search(pattern, text)]
        assert not missing, f"lesson {self.number} says nothing of: {', '.join(missing)}"

    def test_every_guess_is_revealed_later(self, lesson: Lesson) -> None:
        text = "\n".join(cell.source for cell in lesson.cells if cell.kind == "code")
        calls = re.findall(r'^ *labkit\.(predict|reveal)\(\s*"([^"]+)"', text, re.MULTILINE)
        guessed = [guess for what, guess in calls if what == "predict"]
        assert len(guessed) == len(set(guessed)) >= self.least_guesses
        for guess in guessed:
            assert ("reveal", guess) in calls[calls.index(("predict", guess)) :]

    def test_the_deck_is_neither_thin_nor_endless(self, lesson: Lesson) -> None:
        slides = [cell for cell in lesson.cells if cell.kind == "markdown" and {"slide", "slide-only"} & set(cell.tags)]
        least, most = self.slides
        assert least <= len(slides) <= most


def _gaps(provided: Any) -> list[Callable[..., Any]]:
    """Return the functions in which a stub leaves something to write: itself, or those among its methods."""
    found = vars(provided).values() if inspect.isclass(provided) else [provided]
    functions = [inspect.unwrap(getattr(each, "__func__", each)) for each in found if callable(each)]
    return [each for each in functions if any(str(const).startswith("Exercise ") for const in each.__code__.co_consts)]


def _blank(provided: type) -> Any:
    """Return an object whose __init__ has not run."""
    return provided.__new__(provided)
