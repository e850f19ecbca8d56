"""A ``find`` or ``why`` cell, read from its syntax tree: ``labkit.answer("who_waits", rank=3, cause="slow")``."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from labkit.checks.question import Literal


@dataclass(frozen=True)
class AnswerCell:
    """What a cell answers.

    Attributes:
        exercise: The slug handed to ``labkit.answer``.
        fields: Each keyword and its literal; a single answer without a keyword is under "".
    """

    exercise: str
    fields: Mapping[str, Literal]

    def source(self, fields: Mapping[str, Literal]) -> str:
        """Return the cell's source with these answers; a field that is not named has none."""
        given = [f"{name}={fields.get(name)!r}" if name else repr(fields.get(name)) for name in self.fields]
        return f'labkit.answer("{self.exercise}", {", ".join(given)})'

    @property
    def is_empty(self) -> bool:
        """Whether nothing is answered."""
        return all(value is None for value in self.fields.values())


def read_answer(source: str) -> AnswerCell | None:
    """Return what a cell's call of ``labkit.answer`` answers, or None if it is no such call with plain literals.

    Other statements beside the call do not matter: they are not taken.
    """
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    for statement in statements:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call = statement.value
            if ast.unparse(call.func) == "labkit.answer" and (found := _of_call(call)) is not None:
                return found
    return None


def _of_call(call: ast.Call) -> AnswerCell | None:
    if not 1 <= len(call.args) <= 2 or any(keyword.arg is None for keyword in call.keywords):
        return None
    try:
        exercise, *single = (ast.literal_eval(argument) for argument in call.args)
        named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (ValueError, TypeError, MemoryError, RecursionError):
        return None
    fields = ({"": single[0]} if single else {}) | named
    if not isinstance(exercise, str) or not fields:
        return None
    if not all(isinstance(value, int | float | str | bool | None) for value in fields.values()):
        return None
    return AnswerCell(exercise, fields)
