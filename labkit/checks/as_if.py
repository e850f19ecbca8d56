"""Naming a wrong result by a wrong way that gives it: what came is as if the answer had done this."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
Way = tuple[str, Callable[[], T]]
"""A mistake's name, and what gives the result that an answer with this mistake brings."""

NOT_HERE = (ArithmeticError, IndexError, KeyError, ValueError, RuntimeError)
"""What a way raises that does not fit a case."""


def as_if(came: T, ways: Iterable[Way[T]], same: Callable[[T, T], bool]) -> str:
    """Return the name of the first wrong way whose result is what came, or "".

    Args:
        came: The wrong result.
        ways: What is tried, the likeliest mistake first; a way that raises is none.
        same: Whether two results are the same.
    """
    for name, result in ways:
        try:
            if same(came, result()):
                return name
        except NOT_HERE:
            continue
    return ""
