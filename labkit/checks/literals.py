"""What a number or word of an answer is worth, worked out from its syntax: nothing of it runs."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Known: TypeAlias = Mapping[str, object]
"""Names that were given a plain value."""

_LARGEST = 1e300
_MOST_EXPONENT = 64
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs, "float": float, "int": int, "max": max, "min": min, "round": round, "str": str,
}  # fmt: skip


def worth(node: ast.expr, known: Known) -> object:
    """Return the value of a constant, of arithmetic with numbers, or of a name that has such a value.

    Args:
        node: What stands there.
        known: What names are worth.

    Raises:
        ValueError: If it is anything else, or too large.
    """
    try:
        return _worth(node, known)
    except (TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None


def _worth(node: ast.expr, known: Known) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _SIGNS:
        return _SIGNS[type(node.op)](_number(node.operand, known))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _number(node.left, known), _number(node.right, known)
        if isinstance(node.op, ast.Pow) and abs(right) > _MOST_EXPONENT:
            raise ValueError(f"a power of {right}")
        return _bounded(_OPERATORS[type(node.op)](left, right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and node.args:
        if node.keywords or any(isinstance(each, ast.Starred) for each in node.args):
            raise ValueError("arguments by name")
        given = [_worth(each, known) for each in node.args]
        if (
            node.func.id == "round"
            and len(given) > 1
            and not (isinstance(given[1], int) and abs(given[1]) < _MOST_EXPONENT)
        ):
            raise ValueError(f"{given[1]} digits")  # Python works out that power of ten
        return _FUNCTIONS[node.func.id](*given)
    raise ValueError(type(node).__name__)


def _number(node: ast.expr, known: Known) -> Any:
    value = _worth(node, known)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{type(value).__name__} in arithmetic")
    return _bounded(value)


def _bounded(value: Any) -> Any:
    if isinstance(value, complex) or not -_LARGEST < value < _LARGEST:
        raise ValueError("too large")
    return value
