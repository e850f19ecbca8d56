"""Single changes of statements: another assignment, another order, another depth, one left out, a value returned."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import copy
from itertools import pairwise
from typing import TypeAlias

from labkit.checks.undoing.places import Change, is_text

Rule: TypeAlias = Callable[[ast.stmt], Iterator[Change]]
"""Yields the changes of a function or class at the margin."""
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_STAYS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Raise, ast.Pass)


def _bodies(within: ast.AST) -> Iterator[tuple[ast.AST, str, list[ast.stmt]]]:
    for node in ast.walk(within):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list) and not isinstance(node, ast.ClassDef | ast.Module):
                yield node, field, body


def _located(new: ast.stmt, old: ast.stmt) -> ast.stmt:
    ast.copy_location(new, old)
    return ast.fix_missing_locations(new)


def _in_list(body: list[ast.stmt], at: int, *new: ast.stmt) -> list[ast.stmt]:
    return [*body[:at], *new, *body[at + 1 :]] or [_located(ast.Pass(), body[at])]


def augmented(within: ast.stmt) -> Iterator[Change]:
    """Yield an augmented assignment with another operator or none."""
    for node, field, body in _bodies(within):
        for at, each in enumerate(body):
            if isinstance(each, ast.AugAssign):
                new: list[ast.stmt] = [
                    ast.AugAssign(each.target, op(), each.value) for op in _OPERATORS if type(each.op) is not op
                ]
                new.append(ast.Assign([each.target], each.value))
                yield from (_assigned(within, node, field, body, at, one) for one in new)


def assigned(within: ast.stmt) -> Iterator[Change]:
    """Yield an augmented assignment in place of a plain one."""
    for node, field, body in _bodies(within):
        for at, each in enumerate(body):
            target = each.targets[0] if isinstance(each, ast.Assign) and len(each.targets) == 1 else None
            if isinstance(each, ast.Assign) and isinstance(target, ast.Name | ast.Attribute | ast.Subscript):
                new = [ast.AugAssign(target, op(), each.value) for op in _OPERATORS]
                yield from (_assigned(within, node, field, body, at, one) for one in new)


def _assigned(within: ast.stmt, node: ast.AST, field: str, body: list[ast.stmt], at: int, new: ast.stmt) -> Change:
    value = _in_list(body, at, _located(new, body[at]))
    return Change("with another assignment in {where}", body[at].lineno, within, node, field, value)


def orders(within: ast.stmt) -> Iterator[Change]:
    """Yield two neighbours in the other order."""
    for node, field, body in _bodies(within):
        for at, (first, second) in enumerate(pairwise(body)):
            if not isinstance(first, _STAYS) and not isinstance(second, _STAYS) and not is_text(first):
                new = [*body[:at], second, first, *body[at + 2 :]]
                yield Change("with the next statement moved before {where}", first.lineno, within, node, field, new)


def depths(within: ast.stmt) -> Iterator[Change]:
    """Yield the last statement of a block after it, and the first one after a block as its last."""
    says = "with another indentation of {where}"
    for node, field, body in _bodies(within):
        for at, block in enumerate(body):
            if not isinstance(block, ast.For | ast.While | ast.If | ast.With):
                continue
            if len(block.body) > 1:
                last = block.body[-1]
                shorter = _in_list(body, at, _block(block, block.body[:-1]), last)
                yield Change(says, last.lineno, within, node, field, shorter)
            if at + 1 < len(body):
                after = body[at + 1]
                longer = [*body[:at], _block(block, [*block.body, after]), *body[at + 2 :]]
                yield Change(says, after.lineno, within, node, field, longer)


def _block(block: ast.For | ast.While | ast.If | ast.With, body: list[ast.stmt]) -> ast.stmt:
    new = copy(block)
    new.body = body
    return new


def left_out(within: ast.stmt) -> Iterator[Change]:
    """Yield a block without one of its statements."""
    for node, field, body in _bodies(within):
        for at, each in enumerate(body):
            if not isinstance(each, _STAYS) and not is_text(each):
                yield Change("without the statement in {where}", each.lineno, within, node, field, _in_list(body, at))


def returned(within: ast.stmt) -> Iterator[Change]:
    """Yield the values that a function without one may have been meant to return: its last expression, its names."""
    for function in ast.walk(within):
        if not isinstance(function, ast.FunctionDef) or function.name == "__init__" or _gives_something(function):
            continue
        body, last = function.body, function.body[-1]
        stored = [each for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
        names = dict.fromkeys([each.arg for each in function.args.args] + [each.id for each in stored])
        values: list[ast.expr] = [ast.Name(name, ast.Load()) for name in names]
        kept = body[:-1] if isinstance(last, ast.Return) else body
        new = [[*kept, _located(ast.Return(value), last)] for value in values]
        if isinstance(last, ast.Expr) and not is_text(last):
            new.insert(0, [*body[:-1], _located(ast.Return(last.value), last)])
        for each in new:
            yield Change("with a value returned after {where}", last.lineno, within, function, "body", each)


def _gives_something(function: ast.FunctionDef) -> bool:
    """Return whether a function returns or yields values already."""
    inside = list(ast.walk(function))
    given = any(isinstance(each, ast.Return) and each.value is not None for each in inside)
    return given or any(isinstance(each, ast.Yield | ast.YieldFrom) for each in inside)
