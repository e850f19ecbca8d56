"""A ``predict`` cell, read from its syntax tree: ``guess = 0.5`` or ``labkit.predict("step_ms", 0.27, unit="ms")``."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from labkit.checks.literals import worth
from labkit.slugs import is_slug


@dataclass(frozen=True)
class PredictionCell:
    """One guess, and how the cell writes it.

    Attributes:
        name: The variable that is assigned, or the id handed to ``labkit.predict``.
        value: The literal.
        unit: The unit handed to ``labkit.predict``, or "".
        is_call: Whether the cell calls ``labkit.predict``.
    """

    name: str
    value: Any
    unit: str = ""
    is_call: bool = False

    def source(self, value: object) -> str:
        """Return the cell's source with this value for a guess."""
        if not self.is_call:
            return f"{self.name} = {value!r}"
        unit = f', unit="{self.unit}"' if self.unit else ""
        return f'labkit.predict("{self.name}", {value!r}{unit})'


def without_guess(source: str) -> str:
    """Return a ``predict`` cell as a learner gets it: None where ``labkit.predict`` is handed a guess.

    An assignment stays as it is, for other cells read its name.
    """
    for statement in ast.parse(source).body:
        if (found := read_prediction(statement)) and found.is_call:
            guess = statement.value.args[1]  # type: ignore[attr-defined]
            lines = source.encode().split(b"\n")
            before = b"\n".join([*lines[: guess.lineno - 1], lines[guess.lineno - 1][: guess.col_offset]])
            after = b"\n".join([lines[guess.end_lineno - 1][guess.end_col_offset :], *lines[guess.end_lineno :]])
            return (before + b"None" + after).decode()
    return source


def read_prediction(statement: ast.stmt) -> PredictionCell | None:
    """Return the guess that a statement writes down, or None if it is no assignment or call with plain values."""
    try:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                return PredictionCell(target.id, _value(statement.value))
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            return _of_call(statement.value)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return None
    return None


def _value(node: ast.expr) -> Any:
    """Return what a literal, or arithmetic with numbers, is worth."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return worth(node, {})


def _of_call(call: ast.Call) -> PredictionCell | None:
    if ast.unparse(call.func) != "labkit.predict" or len(call.args) != 2:
        return None
    names = [keyword.arg for keyword in call.keywords]
    if names not in ([], ["unit"]):
        return None
    identity, value = (_value(argument) for argument in call.args)
    unit = ast.literal_eval(call.keywords[0].value) if names else ""
    if not (is_slug(identity) and isinstance(unit, str)):
        return None
    return PredictionCell(identity, value, unit, is_call=True)
