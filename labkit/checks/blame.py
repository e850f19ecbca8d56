"""Blame as a table: the signs by which a failure is told to be the work of a mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from labkit.checks.case import Case, Failure
from labkit.checks.finding import Blame
from labkit.checks.wire import Wire

HANGS = ("deadlock", "timeout")
"""Signs of a run that did not end."""

Sign: TypeAlias = Callable[[Case, Failure, Wire], bool]
"""Whether a failure, or what the wire saw until then, bears the sign of a mistake."""


def blaming(signs: Mapping[str, Sign]) -> Blame:
    """Return what blames every mistake whose sign a failure bears, in the order of the table."""

    def blame(case: Case, failure: Failure, wire: Wire) -> Iterator[str]:
        return (name for name, sign in signs.items() if sign(case, failure, wire))

    return blame


def by_signs(signs: Mapping[str, tuple[str, ...]]) -> Blame:
    """Return what blames every mistake of which a failure bears a sign, in the order of the table.

    Args:
        signs: Name of a mistake -> its signs: words of the failure's message, or one of `HANGS`, its kind.
    """
    return blaming({name: bearing(*each) for name, each in signs.items()})


def bearing(*signs: str) -> Sign:
    """Return the sign that a failure's message has one of these words, or its kind is one of `HANGS`."""

    def sign(case: Case, failure: Failure, wire: Wire) -> bool:
        return any(failure.kind == each if each in HANGS else each in failure.message for each in signs)

    return sign
