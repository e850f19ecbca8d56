"""Exercises of the first edition, judged in two steps: a verdict in words, then mistakes that look for their marks.

`judged` makes an Exercise of them. New exercises have a `find` instead; when a lesson is retold its exercises change
over, and with the last of them this module goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.exercise import Exercise, speaks_for_itself
from labkit.checks.finding import Finding
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire

Judge: TypeAlias = Callable[[Case, Got, Wire], Verdict]


@dataclass(frozen=True)
class Mistake:
    """A mistake learners really make, and how it shows.

    Attributes:
        name: A few words, unique within its exercise: "whole tensor at each step".
        hint: A sentence or two that name the mistake and point at the cure.
        seen: Whether what came back and what the wire saw bear the marks of this mistake.
        general: Whether many mistakes look like this one, so that the pattern over all cases says more.
        certain: Whether it is recognised for certain in a plain Python error too (an IndexError, a TypeError, ...).
    """

    name: str
    hint: str
    seen: Callable[[Case, Got, Wire], bool]
    general: bool = False
    certain: bool = False


def judged(*, judge: Judge, mistakes: tuple[Mistake, ...] = (), **fields: Any) -> Exercise:
    """Return the exercise whose findings are what `judge` says, named by the first mistake that is seen.

    Args:
        judge: What is right or wrong with results and wire.
        mistakes: What is recognised, in the order it is tried.
        fields: The other attributes of `Exercise`.
    """

    def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
        said = judge(case, got, wire)
        if not said.passed:
            name = next((each.name for each in mistakes if each.seen(case, got, wire)), "")
            yield Finding(name, said.message, said.expected, said.got, said.rank, said.call, said.problem)

    def blame(case: Case, failure: Failure, wire: Wire) -> Iterator[str]:
        plain = speaks_for_itself(failure)
        return (each.name for each in mistakes if (each.certain or not plain) and each.seen(case, failure, wire))

    return Exercise(
        find=find,
        blame=blame,
        mistakes={each.name: each.hint for each in mistakes},
        general=frozenset(each.name for each in mistakes if each.general),
        certain=frozenset(each.name for each in mistakes if each.certain),
        **fields,
    )


def first_verdict(findings: Iterator[Finding]) -> Verdict | None:
    """Return the first finding as a judge of the first edition says it, or None where nothing is found."""
    found = next(findings, None)
    if found is None:
        return None
    return Verdict(False, found.message, "", found.expected, found.got, "", found.rank, found.call, found.problem)
