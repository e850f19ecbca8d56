"""Where a program's syntax tree can be changed: one new value for one field of one node, put there and taken back.

The tree is never copied. Types, defaults, decorators and docstrings stay as they are, and so does what is raised,
imported or put into text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_NOT_ENTERED = (ast.Raise, ast.Import, ast.ImportFrom, ast.JoinedStr, ast.Assert, ast.Global, ast.Nonlocal)
_FIELDS_LEFT_OUT = frozenset({"annotation", "returns", "decorator_list", "bases", "defaults", "kw_defaults"})


@dataclass(frozen=True)
class Change:
    """One change of one place.

    Attributes:
        says: What kind it is, with {where} for the line: "with another operator in {where}".
        line: Of the source, from 1.
        within: The function or class at the margin that it is in.
        node: Whose field gets another value.
        field: Which.
        value: What it gets.
    """

    says: str
    line: int
    within: ast.stmt
    node: ast.AST
    field: str
    value: Any

    @contextmanager
    def made(self) -> Iterator[None]:
        """Make it for as long as the context lasts."""
        before = getattr(self.node, self.field)
        setattr(self.node, self.field, self.value)
        try:
            yield
        finally:
            setattr(self.node, self.field, before)


@dataclass(frozen=True)
class Place:
    """A node and where it stands: in a field of `owner`, alone (at is None) or in a list."""

    node: ast.expr
    owner: ast.AST
    field: str
    at: int | None
    within: ast.stmt
    names: tuple[str, ...]

    def gets(self, says: str, new: ast.expr) -> Change:
        """Return the change that puts another node here."""
        ast.copy_location(new, self.node)
        ast.fix_missing_locations(new)
        value: Any = new
        if self.at is not None:
            value = list(getattr(self.owner, self.field))
            value[self.at] = new
        return Change(says, self.node.lineno, self.within, self.owner, self.field, value)


def places(node: ast.AST, within: ast.stmt, names: tuple[str, ...] = ()) -> Iterator[Place]:
    """Yield every expression in a node, with the names of values that it could use."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        names = tuple(dict.fromkeys([*names, *_names_of(node)]))
    for field, value in ast.iter_fields(node):
        if field in _FIELDS_LEFT_OUT:
            continue
        for at, each in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(each, ast.AST) or isinstance(each, _NOT_ENTERED) or is_text(each):
                continue
            if isinstance(each, ast.expr):
                yield Place(each, node, field, at, within, names)
            yield from places(each, within, names)


def _names_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the names that a function's own values have: its arguments, and what it assigns."""
    stored = [each for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    return [each.arg for each in function.args.args if each.arg not in ("self", "cls", "ctx")] + [
        each.id for each in stored
    ]


def is_text(node: ast.AST) -> bool:
    """Return whether a statement is a text by itself: a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
