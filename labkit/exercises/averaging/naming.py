"""Naming a wrong training: a table of mistakes, each with the sign by which a whole run bears it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from labkit.checks.blame import blaming
from labkit.checks.case import Case, Got, Values
from labkit.checks.finding import Find, Finding
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire

Seen: TypeAlias = Callable[[Case, Got, Wire], bool]


@dataclass(frozen=True)
class Mark:
    """A mistake, and how it shows in what the ranks hold and in what travelled.

    Attributes:
        name: A few words, unique within its exercise.
        hint: A sentence or two that name the mistake and point at the cure.
        seen: Whether results and wire bear its sign.
        general: Whether many mistakes look like this one.
        certain: Whether it is recognised for certain in a plain Python error too.
    """

    name: str
    hint: str
    seen: Seen
    general: bool = False
    certain: bool = False


def named(problems: Find, marks: tuple[Mark, ...]) -> Find:
    """Return a find that names what `problems` yields by the first mark that the run bears."""

    def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
        for problem in problems(case, got, wire):
            name = next((mark.name for mark in marks if mark.seen(case, got, wire)), "")
            yield replace(problem, mistake=name)

    return find


def by_marks(problems: Find, marks: tuple[Mark, ...]) -> dict[str, Any]:
    """Return find, blame, mistakes, general and certain of an Exercise whose mistakes are these."""
    return {
        "find": named(problems, marks),
        "blame": blaming({mark.name: mark.seen for mark in marks}),
        "mistakes": {mark.name: mark.hint for mark in marks},
        "general": frozenset(mark.name for mark in marks if mark.general),
        "certain": frozenset(mark.name for mark in marks if mark.certain),
    }


def as_finding(verdict: Verdict | None) -> Finding | None:
    """Return what a comparison of tensors says as a finding without a name."""
    if verdict is None:
        return None
    said = verdict
    return Finding("", said.message, said.expected, said.got, said.rank, said.call, said.problem)
