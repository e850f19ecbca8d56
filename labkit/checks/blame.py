"""Blame as a table: the signs by which a failure is told to be the work of a mistake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from labkit.checks.case import Case, Failure
from labkit.checks.finding import Blame
from labkit.checks.wire import Wire

HANGS = ("deadlock", "timeout")
"""Signs of a run that did not end."""


def by_signs(signs: Mapping[str, tuple[str, ...]]) -> Blame:
    """Return what blames every mistake of which a failure bears a sign, in the order of the table.

    Args:
        signs: Name of a mistake -> its signs: words of the failure's message, or one of `HANGS`, its kind.
    """

    def blame(case: Case, failure: Failure, wire: Wire) -> Iterator[str]:
        return (name for name, each in signs.items() if any(_bears(failure, sign) for sign in each))

    return blame


def _bears(failure: Failure, sign: str) -> bool:
    return failure.kind == sign if sign in HANGS else sign in failure.message
