"""A finding: what is wrong with a case, and the mistake it points to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from labkit.checks.case import Case, Failure, Values
    from labkit.checks.wire import Wire, WireProblem


@dataclass(frozen=True)
class Finding:
    """What is wrong.

    Attributes:
        mistake: Name of the mistake it points to, under which the exercise may keep a hint.
        message: In a sentence or a few lines, with the numbers.
        expected: What should have come, in words and numbers; may be "".
        got: What came, at the first place where they differ; may be "".
        rank: The rank whose part of the run shows it best; None where it is no single one.
        call: Which of the rank's communication calls of the case it is about, as `Message.sent` and
            `CollectiveCall.sequence` count; None where it is about no single call.
        problem: What was seen on the wire and is repeated here, or None.
        most_bytes: How much a message may hold at most, where one holds more; else None.
    """

    mistake: str
    message: str
    expected: str = ""
    got: str = ""
    rank: int | None = None
    call: int | None = None
    problem: WireProblem | None = None
    most_bytes: int | None = None


Find: TypeAlias = "Callable[[Case, tuple[Values, ...], Wire], Iterator[Finding]]"
"""Yields what is wrong with results, the gravest first; only the first is looked at, and nothing means right."""

Blame: TypeAlias = "Callable[[Case, Failure, Wire], Iterator[str]]"
"""Yields the names of mistakes that a failure (an exception, a deadlock, ...) points to, the likeliest first."""


def blames_nobody(case: Case, failure: Failure, wire: Wire) -> Iterator[str]:
    """Yield nothing: the failure says itself what is wrong."""
    return iter(())
