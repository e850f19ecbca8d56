"""A wrong answer that learners really give, and the mistake a check must name; those of an exercise: LESSON/SLUG.py."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path

from tests.checks.lesson_cells import lesson


@dataclass(frozen=True)
class WrongAnswer:
    """Source that defines the exercise's functions; everything else of the lesson is right.

    Attributes:
        exercise: Its slug.
        name: What is wrong, in a few words.
        mistake: Name of the mistake that must be recognised.
        source: Python source, run after the lesson's given and exercise cells.
    """

    exercise: str
    name: str
    mistake: str
    source: str


def replaced(source: str, *changes: tuple[str, str]) -> str:
    """Return the source with each piece of text, which must be there, replaced."""
    for old, new in changes:
        assert old in source, f"the answer has no {old!r}"
        source = source.replace(old, new)
    return source


class WrongAnswers(list[WrongAnswer]):
    """The wrong answers to one exercise.

    Args:
        module: Name of the module they stand in: ``tests.exercises.LESSON.SLUG``.
    """

    def __init__(self, module: str) -> None:
        super().__init__()
        self.lesson, self.exercise = module.split(".")[-2:]

    @cached_property
    def answer(self) -> str:
        """The lesson's own answer."""
        (cell,) = [
            cell for cell in lesson(self.lesson).cells if cell.is_code_exercise and cell.exercise == self.exercise
        ]
        return cell.source

    def wrong(self, name: str, mistake: str, source: str) -> None:
        """Add an answer."""
        self.append(WrongAnswer(self.exercise, name, mistake, source))

    def changed(self, name: str, mistake: str, *changes: tuple[str, str]) -> None:
        """Add the lesson's answer with each of the texts replaced, so that nothing else is wrong."""
        self.wrong(name, mistake, replaced(self.answer, *changes))


def wrong_answers(lesson_slug: str) -> list[WrongAnswer]:
    """Return the wrong answers of a lesson, exercise by exercise."""
    modules = sorted(path.stem for path in (Path(__file__).parent / lesson_slug).glob("*.py"))
    return [each for name in modules for each in import_module(f"tests.exercises.{lesson_slug}.{name}").WRONG]
