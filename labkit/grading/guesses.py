"""What a student predicted, beside what the lesson's own run found and what the student's notebook measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from labkit.checks.predictions import Plain, how_far, with_unit
from labkit.grading.notebook.rebuild import Rebuilt
from labkit.grading.plain_text import plain_text

_LARGEST = 1e300


@dataclass(frozen=True)
class Guess:
    """One prediction.

    Attributes:
        name: What is guessed: its slug, or the variable.
        guess: What was written down; None if nothing was.
        unit: Of all three.
        found: What the lesson's executed solution revealed, or None.
        measured: What the student's own notebook revealed when the grader ran it, or None.
    """

    name: str
    guess: Plain
    unit: str = ""
    found: Plain = None
    measured: Plain = None

    def __str__(self) -> str:
        """Return it in a sentence."""
        words = "no guess" if self.guess is None else with_unit(self.guess, self.unit)
        if self.found is not None:
            words += f"; the lesson found {with_unit(self.found, self.unit)}"
            words += "" if self.guess is None else f": {how_far(self.guess, self.found, self.unit)}"
        if self.measured is not None:
            words += f"; your notebook, run here, {with_unit(self.measured, self.unit)}"
        return words


def guesses(rebuilt: Rebuilt, found: Mapping[str, Plain], measured: Mapping[str, Plain]) -> tuple[Guess, ...]:
    """Return every prediction of a submission.

    Args:
        rebuilt: The submission in the pristine notebook.
        found: What the executed solution revealed, by prediction.
        measured: What the student's own run revealed.
    """
    return tuple(
        Guess(name, _sane(each.value), each.unit, found.get(name), measured.get(name))
        for name, each in rebuilt.predictions.items()
    )


def revealed(cells: Iterable[Any]) -> dict[str, Plain]:
    """Return what an executed notebook's cells reveal, by prediction; nothing but plain values of a sane size.

    Whoever ran the notebook wrote this: of a student's it is feedback, and never earns a point.
    """
    found: dict[str, Plain] = {}
    for output in (output for cell in cells for output in cell.get("outputs", [])):
        metadata = output.get("metadata")
        kept = metadata.get("labkit") if isinstance(metadata, Mapping) else None
        if not isinstance(kept, Mapping) or not isinstance(kept.get("prediction"), str):
            continue
        value = _sane(kept.get("result"))
        if value is not None:
            found[kept["prediction"]] = value
    return found


def _sane(value: object) -> Plain:
    """Return a number, word or flag that can be compared and shown, else None."""
    if isinstance(value, str):
        return plain_text(value, 200)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value if -_LARGEST < value < _LARGEST else None
    return None
