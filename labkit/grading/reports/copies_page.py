"""The page on which an instructor reads the code of submissions that are alike, side by side."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labkit.grading.reports.copies import Case, Copies, Work
from labkit.grading.reports.page import page
from labkit.grading.reports.similarity import tokens
from labkit.lessons.manifest import Manifest

_MOST_CASES = 100
_MOST_EXERCISES = 8
_MOST_SIDES = 3
_MOST_LINES = 400


@dataclass(frozen=True)
class _Side:
    """One text of an exercise.

    Attributes:
        names: Who handed it in so, to the letter.
        lines: Its lines, each with "same" where the other side has it too, "alike" where it has it but for names,
            spaces and comments, and else "".
    """

    names: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Compared:
    """An exercise in a case.

    Attributes:
        name: Number and title.
        sides: Different texts, at most three.
        num_more: How many texts more there are.
    """

    name: str
    sides: tuple[_Side, ...]
    num_more: int


def copies_page(
    found: Copies,
    works: Sequence[Work],
    manifest: Manifest,
    closed: Mapping[str, str],
    people: Mapping[str, str] | None = None,
) -> bytes:
    """Return the page; it names students and shows their code.

    Args:
        found: Who is alike.
        works: Everybody's work.
        manifest: The lesson's.
        closed: The notes of cases that were closed, by id.
        people: Whose files are, by their names; a file of nobody known goes by its own.
    """
    people = people or {}
    by_name = {work.name: work for work in works}
    names = {each.id: each.name for each in manifest.exercises}
    ordered = sorted(found.cases[:_MOST_CASES], key=lambda case: case.id in closed)
    shown = [
        (_called(case.names, people), case, closed.get(case.id, ""), _compared(case, by_name, names, people))
        for case in ordered
    ]
    return page(
        "copies_page.html",
        title=manifest.title,
        cases=shown,
        num_more=max(0, len(found.cases) - _MOST_CASES),
        from_pack={
            people.get(name, name): [names.get(each, each) for each in listed]
            for name, listed in found.from_pack.items()
        },
    )


def _called(names: Sequence[str], people: Mapping[str, str]) -> list[str]:
    """Return whose these files are, once each."""
    return list(dict.fromkeys(people.get(name, name) for name in names))


def _compared(
    case: Case, works: Mapping[str, Work], names: Mapping[str, str], people: Mapping[str, str]
) -> list[_Compared]:
    compared = []
    for exercise in case.exercises[:_MOST_EXERCISES]:
        texts: dict[str, list[str]] = {}
        for name in case.names:
            if exercise in works[name].answers:
                texts.setdefault(works[name].answers[exercise].strip(), []).append(name)
        listed = sorted(texts.items(), key=lambda each: -len(each[1]))
        first, second = (listed[at][0] if len(listed) > at else "" for at in range(2))
        sides = tuple(
            _Side(tuple(_called(whose, people)), _lines(text, first if at else second))
            for at, (text, whose) in enumerate(listed[:_MOST_SIDES])
        )
        compared.append(_Compared(names.get(exercise, exercise), sides, max(0, len(listed) - _MOST_SIDES)))
    return compared


def _lines(text: str, other: str) -> tuple[tuple[str, str], ...]:
    """Return the lines of a text, each with what the other has of it at the same place, in the words of `_Side`."""
    own, there = (each.splitlines()[:_MOST_LINES] for each in (text, other))
    mine, theirs = ([(at, line) for at, line in enumerate(each) if tokens(line)] for each in (own, there))
    marks: dict[int, str] = {}
    bare = [[" ".join(tokens(line)) for _, line in each] for each in (mine, theirs)]
    for here, at, size in difflib.SequenceMatcher(None, bare[0], bare[1], autojunk=False).get_matching_blocks():
        for (number, line), (_, opposite) in zip(mine[here : here + size], theirs[at : at + size], strict=True):
            marks[number] = "same" if line.split() == opposite.split() else "alike"
    return tuple((line, marks.get(at, "")) for at, line in enumerate(own))
