"""The literals of a submission's answers and guesses, read from syntax trees; nothing of their cells runs."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from labkit.checks.answer_cell import AnswerCell, read_answer
from labkit.checks.question import Literal
from labkit.lessons.prediction_cell import PredictionCell, read_prediction
from labkit.lessons.submitted_cell import SubmittedCell

_MAX_PREDICTION = 2000


def take_answer(
    cell: Any,
    exercise: str,
    number: str,
    source: str,
    answered: dict[str, Mapping[str, Literal]],
    unchanged: list[str],
    notes: list[str],
) -> None:
    """Take the literals of a learner's answer, for the fields that the notebook asks for."""
    ours, theirs = read_answer(cell.source), sane_answer(source, exercise)
    if ours is None or theirs is None:
        notes.append(
            f"Exercise {number}: its answer is not a plain value such as 3 or 'send', so it does not count; write the "
            "value itself in the call of labkit.answer."
        )
        unchanged.append(exercise)
        return
    if unasked := [name for name in theirs.fields if name not in ours.fields]:
        notes.append(f"Exercise {number}: {', '.join(unasked) or 'a value without a name'} was not asked for.")
    taken = {name: theirs.fields.get(name) for name in ours.fields}
    if all(value is None for value in taken.values()):
        unchanged.append(exercise)
        return
    answered[exercise] = taken
    cell.source = ours.source(taken)


def sane_answer(source: str, exercise: str) -> AnswerCell | None:
    """Return what a cell answers to an exercise with plain, finite values, or None."""
    found = read_answer(source, exercise) if len(source) <= _MAX_PREDICTION else None
    if found is None or found.exercise != exercise:
        return None
    finite = (not isinstance(value, float) or math.isfinite(value) for value in found.fields.values())
    return found if all(finite) else None


def take_prediction(
    cell: Any, code: Sequence[SubmittedCell], used: set[int], notes: list[str], predictions: dict[str, PredictionCell]
) -> None:
    """Take the literal that a learner guessed, from the cell with its id, else from one that guesses the same."""
    ours = next(filter(None, map(read_prediction, ast.parse(cell.source).body)), None)
    if ours is None:
        return
    found = [each for each in code if each.id == cell.id]
    found = found or [
        each for each in code if ours.name in each.source and _literal(each.source, ours) is not _NO_LITERAL
    ]
    used.update(each.position for each in found)
    if not found:
        return
    value = _literal(found[0].source, ours)
    if value is _NO_LITERAL:
        notes.append(f"The prediction {ours.name} is not a plain value such as 0.5, so it does not count.")
        return
    predictions[ours.name] = replace(ours, value=value)
    cell.source = ours.source(value)


_NO_LITERAL = object()


def _literal(source: str, ours: PredictionCell) -> object:
    """Return the number, string, flag or None that `source` guesses in place of `ours`, else `_NO_LITERAL`."""
    if len(source) > _MAX_PREDICTION:
        return _NO_LITERAL
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return _NO_LITERAL
    for found in filter(None, map(read_prediction, statements)):
        if (found.name, found.is_call) == (ours.name, ours.is_call):
            value = found.value
            if value is Ellipsis or not isinstance(value, int | float | str | bool | None):
                return _NO_LITERAL
            return _NO_LITERAL if isinstance(value, float) and not math.isfinite(value) else value
    return _NO_LITERAL
