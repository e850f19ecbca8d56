"""A wrong answer that learners really give, and the mistake a check must name; those of a lesson: wrong_answers_NN."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path


@dataclass(frozen=True)
class WrongAnswer:
    """Source that defines the exercise's functions; everything else of the lesson is right.

    Attributes:
        exercise: Its id.
        name: What is wrong, in a few words.
        mistake: Name of the Mistake that must be recognised.
        source: Python source, run after the lesson's given and exercise cells.
    """

    exercise: str
    name: str
    mistake: str
    source: str


def wrong_answers() -> dict[str, list[WrongAnswer]]:
    """Return the wrong answers of each lesson that has some, by its number."""
    modules = sorted(path.stem for path in Path(__file__).parent.glob("wrong_answers_[0-9][0-9].py"))
    return {name[-2:]: import_module(f"tests.checks.{name}").WRONG for name in modules}
