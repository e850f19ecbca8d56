"""Single changes of expressions: another operator, number, name, order or sign; a call or a part more or less."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import combinations
from typing import Any, TypeAlias

from labkit.checks.undoing.families import CALLED, NEAR, OPERATORS, RELATED, far, others
from labkit.checks.undoing.places import Place

Rule: TypeAlias = Callable[[Place], Iterator[ast.expr]]
"""Yields what may stand in a place instead."""
_METHODS = ("clone", "detach", "t", "wait", "contiguous", "abs", "sum", "mean", "sqrt", "flatten", "exp", "item")


def _like(node: Any, **fields: Any) -> Any:
    new = copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _number(value: float) -> ast.Constant:
    return ast.Constant(value)


def comparison(place: Place) -> Iterator[ast.expr]:
    """Yield a comparison with an operator that is near."""
    yield from _compared(place, lambda op: NEAR.get(op, ()))


def far_comparison(place: Place) -> Iterator[ast.expr]:
    """Yield a comparison with any other operator."""
    yield from _compared(place, lambda op: far(RELATED, op))


def _compared(place: Place, others_of: Callable[[type[ast.AST]], Sequence[Any]]) -> Iterator[ast.expr]:
    node = place.node
    if isinstance(node, ast.Compare):
        for at, op in enumerate(node.ops):
            for other in others_of(type(op)):
                yield _like(node, ops=[*node.ops[:at], other(), *node.ops[at + 1 :]])


def operator(place: Place) -> Iterator[ast.expr]:
    """Yield an operation with an operator that is near."""
    if isinstance(place.node, ast.BinOp):
        yield from (_like(place.node, op=other()) for other in NEAR.get(type(place.node.op), ()))


def far_operator(place: Place) -> Iterator[ast.expr]:
    """Yield an operation with any other operator."""
    if isinstance(place.node, ast.BinOp):
        yield from (_like(place.node, op=other()) for other in far(OPERATORS, type(place.node.op)))


def sides(place: Place) -> Iterator[ast.expr]:
    """Yield an operation whose sides are swapped, where that matters."""
    node = place.node
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Add | ast.Mult):
        yield _like(node, left=node.right, right=node.left)


def other_number(place: Place) -> Iterator[ast.expr]:
    """Yield the numbers beside a constant, 0 and 1."""
    value = _number_in(place)
    if value is not None:
        tried = dict.fromkeys([value + 1, value - 1, 0, 1])
        yield from (_number(each) for each in tried if each != value)


def far_number(place: Place) -> Iterator[ast.expr]:
    """Yield twice and half of a constant, and 2."""
    value = _number_in(place)
    if value is not None:
        tried = dict.fromkeys([value * 2, value / 2 if isinstance(value, float) else value // 2, 2])
        yield from (_number(each) for each in tried if each not in (value, value + 1, value - 1, 0, 1))


def _number_in(place: Place) -> int | float | None:
    value = place.node.value if isinstance(place.node, ast.Constant) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def shifted(place: Place) -> Iterator[ast.expr]:
    """Yield an index, a bound of a slice or of a range, one higher and one lower."""
    node = place.node
    owner = place.owner
    is_index = isinstance(owner, ast.Subscript) and place.field == "slice"
    is_bound = isinstance(owner, ast.Slice)
    is_range = isinstance(owner, ast.Call) and place.field == "args" and _called(owner) in ("range", "arange")
    if (is_index or is_bound or is_range) and not isinstance(node, ast.Slice | ast.Tuple | ast.Constant):
        yield ast.BinOp(node, ast.Add(), _number(1))
        yield ast.BinOp(node, ast.Sub(), _number(1))


def and_or(place: Place) -> Iterator[ast.expr]:
    """Yield `or` for `and`, `and` for `or`."""
    node = place.node
    if isinstance(node, ast.BoolOp):
        yield _like(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())


def opposite(place: Place) -> Iterator[ast.expr]:
    """Yield the opposite of a condition."""
    node = place.node
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif place.field in ("test", "ifs") or isinstance(place.owner, ast.BoolOp):
        yield ast.UnaryOp(ast.Not(), node)


def other_function(place: Place) -> Iterator[ast.expr]:
    """Yield a name or attribute that is taken for this one."""
    node = place.node
    if isinstance(node, ast.Attribute):
        yield from (_like(node, attr=each) for each in others(CALLED, node.attr))
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield from (_like(node, id=each) for each in others(CALLED, node.id))


def other_keyword(place: Place) -> Iterator[ast.expr]:
    """Yield a call with a keyword that is taken for one of its own."""
    node = place.node
    if isinstance(node, ast.Call):
        for at, each in enumerate(node.keywords):
            for other in others(CALLED, each.arg):
                yield _like(node, keywords=[*node.keywords[:at], _like(each, arg=other), *node.keywords[at + 1 :]])


def _swapped(items: Sequence[Any]) -> Iterator[list[Any]]:
    for first, second in combinations(range(min(len(items), 4)), 2):
        new = list(items)
        new[first], new[second] = items[second], items[first]
        yield new


def arguments(place: Place) -> Iterator[ast.expr]:
    """Yield a call with two arguments swapped."""
    node = place.node
    if not isinstance(node, ast.Call) or any(isinstance(each, ast.Starred) for each in node.args):
        return
    yield from (_like(node, args=args) for args in _swapped(node.args))
    for one, two in combinations(range(min(len(node.keywords), 4)), 2):
        keywords = list(node.keywords)
        keywords[one] = _like(keywords[one], value=node.keywords[two].value)
        keywords[two] = _like(keywords[two], value=node.keywords[one].value)
        yield _like(node, keywords=keywords)


def values(place: Place) -> Iterator[ast.expr]:
    """Yield a tuple, a list or a choice with two values swapped."""
    node = place.node
    if isinstance(node, ast.Tuple | ast.List) and not isinstance(place.owner, ast.Subscript):
        yield from (_like(node, elts=elts) for elts in _swapped(node.elts))
    elif isinstance(node, ast.IfExp):
        yield _like(node, body=node.orelse, orelse=node.body)


def true_false(place: Place) -> Iterator[ast.expr]:
    """Yield the other of True and False."""
    if isinstance(place.node, ast.Constant) and isinstance(place.node.value, bool):
        yield ast.Constant(not place.node.value)


def sign(place: Place) -> Iterator[ast.expr]:
    """Yield a value with another sign."""
    node = place.node
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand
    elif isinstance(place.owner, ast.BinOp | ast.Return | ast.Assign | ast.keyword) and _is_value(node):
        yield ast.UnaryOp(ast.USub(), node)


def _is_value(node: ast.expr) -> bool:
    kinds = ast.Name | ast.Call | ast.Attribute | ast.Subscript | ast.BinOp
    return isinstance(node, kinds) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)


def other_variable(place: Place) -> Iterator[ast.expr]:
    """Yield the other values that a function knows."""
    node = place.node
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in place.names:
        yield from (_like(node, id=each) for each in place.names if each != node.id)


def call_left_out(place: Place) -> Iterator[ast.expr]:
    """Yield what a function or a method is called on, without the call."""
    node = place.node
    if not isinstance(node, ast.Call):
        return
    if len(node.args) == 1 and isinstance(node.func, ast.Name):
        yield node.args[0]
    if isinstance(node.func, ast.Attribute) and _is_value(node.func.value) and len(node.args) < 2:
        yield node.func.value


def variable_for_number(place: Place) -> Iterator[ast.expr]:
    """Yield a name in place of a number."""
    if _number_in(place) is not None:
        yield from (ast.Name(each, ast.Load()) for each in place.names)


def part_left_out(place: Place) -> Iterator[ast.expr]:
    """Yield an operation without one of its sides, a condition without one of its parts, a slice without a bound."""
    node = place.node
    if isinstance(node, ast.BinOp):
        yield from (node.left, node.right)
    elif isinstance(node, ast.BoolOp) and len(node.values) == 2:
        yield from node.values
    elif isinstance(node, ast.Slice):
        yield from (_like(node, **{bound: None}) for bound in ("lower", "upper") if getattr(node, bound) is not None)


def bound_added(place: Place) -> Iterator[ast.expr]:
    """Yield a slice with one bound more."""
    node = place.node
    if isinstance(node, ast.Slice):
        more = [("lower", _number(1)), ("upper", ast.UnaryOp(ast.USub(), _number(1)))]
        more += [(bound, ast.Name(each, ast.Load())) for each in place.names for bound in ("lower", "upper")]
        yield from (_like(node, **{bound: new}) for bound, new in more if getattr(node, bound) is None)


def call_added(place: Place) -> Iterator[ast.expr]:
    """Yield a value with one more call around it or behind it."""
    node = place.node
    if not _is_value(node) or (isinstance(place.owner, ast.Call) and place.field == "func"):
        return
    if isinstance(place.owner, ast.Attribute):
        return
    if place.field == "iter":
        yield ast.Call(ast.Name("reversed", ast.Load()), [node], [])
        yield ast.Call(ast.Name("sorted", ast.Load()), [node], [])
    for method in _METHODS:
        yield ast.Call(ast.Attribute(node, method, ast.Load()), [], [])


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
