"""The single changes of an answer that may undo a slip, likeliest first."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from labkit.checks.undoing import expressions, statements
from labkit.checks.undoing.places import Change, Place, places

MOST = 1000
"""So many changes of one answer are tried at most."""
_Kind: TypeAlias = Callable[[Sequence[ast.stmt], Sequence[Place]], Iterator[Change]]


def changes(functions: Sequence[ast.stmt]) -> list[Change]:
    """Return the changes of functions and classes, in the order in which they are tried."""
    there = [place for each in functions for place in places(each, each)]
    return list(islice((change for kind in _ORDER for change in kind(functions, there)), MOST))


def _of_expressions(says: str, rule: expressions.Rule) -> _Kind:
    return lambda functions, there: (place.gets(says, new) for place in there for new in rule(place))


def _of_statements(rule: statements.Rule) -> _Kind:
    return lambda functions, there: (change for each in functions for change in rule(each))


_ORDER: tuple[_Kind, ...] = (
    _of_expressions("with another comparison in {where}", expressions.comparison),
    _of_expressions("with the other of True and False in {where}", expressions.true_false),
    _of_expressions("with the other of `and` and `or` in {where}", expressions.and_or),
    _of_expressions("with the opposite condition in {where}", expressions.opposite),
    _of_expressions("with another operator in {where}", expressions.operator),
    _of_statements(statements.augmented),
    _of_expressions("with another number in {where}", expressions.other_number),
    _of_expressions("with an index or bound one higher or lower in {where}", expressions.shifted),
    _of_expressions("with the two sides swapped in {where}", expressions.sides),
    _of_expressions("with another function or attribute in {where}", expressions.other_function),
    _of_expressions("with another keyword in {where}", expressions.other_keyword),
    _of_expressions("with two arguments swapped in {where}", expressions.arguments),
    _of_expressions("with two values swapped in {where}", expressions.values),
    _of_statements(statements.returned),
    _of_statements(statements.depths),
    _of_statements(statements.orders),
    _of_statements(statements.left_out),
    _of_expressions("with another sign in {where}", expressions.sign),
    _of_expressions("with another comparison in {where}", expressions.far_comparison),
    _of_expressions("with another operator in {where}", expressions.far_operator),
    _of_expressions("with another number in {where}", expressions.far_number),
    _of_statements(statements.assigned),
    _of_expressions("with one call fewer in {where}", expressions.call_left_out),
    _of_expressions("with a part left out in {where}", expressions.part_left_out),
    _of_expressions("with another variable in {where}", expressions.other_variable),
    _of_expressions("with a variable in place of a number in {where}", expressions.variable_for_number),
    _of_expressions("with another bound in {where}", expressions.bound_added),
    _of_expressions("with one more call in {where}", expressions.call_added),
)
