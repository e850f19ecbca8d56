"""A ``find`` or ``why`` cell, read from its syntax tree: ``labkit.answer("who_waits", rank=3, cause="slow")``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from labkit.cells import as_python
from labkit.checks.literals import worth
from labkit.checks.question import Literal

_LONGEST = 20_000
"""Characters of a cell beyond which it is not read."""


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


def read_answer(source: str, exercise: str = "") -> AnswerCell | None:
    """Return what a cell's last call of ``labkit.answer`` answers, or None if it has none with plain values.

    Plain are constants, arithmetic with them, and names that the cell gives such a value. Other statements beside the
    call do not matter: they are not taken.

    Args:
        source: The cell.
        exercise: Look at calls for this one alone.
    """
    if len(source) > _LONGEST:
        return None
    try:
        statements = ast.parse(as_python(source)).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    known: dict[str, object] = {}
    last: AnswerCell | None = None
    for statement in statements:
        for call in _calls(statement):
            found = _of_call(call, known)
            if found is None or not exercise or found.exercise == exercise:
                last = found
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                known.pop(target.id, None)
                try:
                    known[target.id] = worth(statement.value, known)
                except ValueError:
                    pass
    return last


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """Yield the calls of ``labkit.answer``, by whatever name, in a statement that runs at once."""
    if not isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign):
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            name = node.func
            if (isinstance(name, ast.Attribute) and name.attr == "answer" and isinstance(name.value, ast.Name)) or (
                isinstance(name, ast.Name) and name.id == "answer"
            ):
                yield node
            elif isinstance(name, ast.Attribute) and name.attr == "run_line_magic" and len(node.args) == 2:
                yield from _of_magic(node.args[1])


def _of_magic(line: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls in the statement of ``%time``."""
    if isinstance(line, ast.Constant) and isinstance(line.value, str):
        try:
            body = ast.parse(line.value).body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return
        for statement in body:
            yield from _calls(statement)


def _of_call(call: ast.Call, known: Mapping[str, object]) -> AnswerCell | None:
    if not 1 <= len(call.args) <= 2:
        return None
    try:
        exercise, *single = (worth(argument, known) for argument in call.args)
        named = {name: worth(value, known) for name, value in _named(call)}
    except ValueError:
        return None
    fields = ({"": single[0]} if single else {}) | named
    if not isinstance(exercise, str) or not fields:
        return None
    plain = {name: value for name, value in fields.items() if isinstance(value, int | float | str | bool | None)}
    return AnswerCell(exercise, plain) if len(plain) == len(fields) else None


def _named(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the arguments by name, those of ``**{"rank": 3}`` and ``**dict(rank=3)``, too."""
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield keyword.arg, keyword.value
        elif isinstance(keyword.value, ast.Dict):
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                    raise ValueError("a name that is not written out")
                yield key.value, value
        elif isinstance(keyword.value, ast.Call) and ast.unparse(keyword.value.func) == "dict":
            if keyword.value.args:
                raise ValueError("a dict of something")
            yield from _named(keyword.value)
        else:
            raise ValueError("arguments that are not written out")
