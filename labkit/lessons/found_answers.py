"""Which cells of a submission answer an exercise: those that define its functions, as a kernel would have them.

A cell is known by its id and marks, and by what it defines: so an answer in a copied cell, in a new one, or in two is
found. Of several that differ from what was handed out, the last above the exercise's check counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.lessons.statements import Code, Statement
from labkit.lessons.submitted_cell import SubmittedCell


@dataclass(frozen=True)
class Asked:
    """An exercise, as the notebook that was handed out asks for it.

    Attributes:
        cell: Its cell.
        slug: The exercise.
        number: How learners know it.
        task: What kind it is.
        provides: The names it asks for.
    """

    cell: Any
    slug: str
    number: str
    task: str
    provides: tuple[str, ...]

    def marks(self, cell: SubmittedCell) -> bool:
        """Return whether a cell says that it is this exercise's."""
        return cell.id == self.cell.id or (cell.exercise == self.slug and self.task in cell.tags)


@dataclass(frozen=True)
class Taken:
    """The cells that answer an exercise.

    Attributes:
        own: Those that are taken whole, in the order in which they run.
        parts: Statements of cells that are another's, where an answer stands in them.
        marked: The cells that say they are the exercise's.
        check: The place of the cell that checks it, or the end of the file.
    """

    own: tuple[SubmittedCell, ...]
    parts: tuple[Statement, ...]
    marked: tuple[SubmittedCell, ...]
    check: int


def take(asked: Asked, code: Code, others: Collection[int]) -> Taken:
    """Return what answers an exercise.

    Args:
        asked: The exercise.
        code: The submission.
        others: The places of cells that are not taken whole: another exercise's, or handed out for something else.
    """
    marked = tuple(cell for cell in code.cells if asked.marks(cell))
    check = _check(asked.slug, code)
    makers = {cell.position: _makes(asked, code.of(cell)) for cell in code.cells}
    done: set[int] = set()
    begun: set[int] = set()
    for name in asked.provides:
        having = [place for place, made in makers.items() if made.get(name)]
        gaps = [place for place, made in makers.items() if made.get(name) is False]
        if having:
            done |= _having_made(name, having, check, code)
        elif gaps:
            begun.add(next((cell.position for cell in marked if cell.position in gaps), gaps[0]))
    if not done:
        changed = [cell for cell in marked if cell.source.strip() != asked.cell.source.strip()]
        one = [*(cell for cell in changed if not code.of(cell)), *changed, *marked][:1]
        one = one or [cell for cell in code.cells if cell.position in begun - set(others)][:1]
        return Taken(tuple(one), (), marked, check)
    order = [*sorted(begun - done), *sorted(done)]
    by_place = {cell.position: cell for cell in code.cells}
    whole = [by_place[place] for place in order if place not in others or by_place[place] in marked]
    parts = [
        statement
        for place in order
        if by_place[place] not in whole
        for statement in code.of(by_place[place])
        if statement.binds & set(asked.provides) and not statement.is_gap
    ]
    return Taken(tuple(whole), tuple(parts), marked, check)


def _having_made(name: str, having: Sequence[int], check: int, code: Code) -> set[int]:
    """Return the cells that make a name: the last above the check, and those of which it is made anew there."""
    found = {max((place for place in having if place < check), default=max(having))}
    for place in sorted(having, reverse=True):
        last = min(found)
        if not code.takes_before_it_makes(name, last):
            break
        if place < last:
            found.add(place)
    return found


def _makes(asked: Asked, statements: Sequence[Statement]) -> dict[str, bool]:
    """Return which of an exercise's names a cell makes, and whether each is more than what was handed out."""
    made = {}
    for statement in statements:
        for name in statement.binds & set(asked.provides):
            made[name] = not statement.is_gap
    return made


def _check(slug: str, code: Code) -> int:
    """Return the place of the last cell that checks an exercise, or of the end."""
    places = []
    for cell in code.cells:
        if slug not in cell.source and cell.exercise != slug:
            continue
        marked = cell.exercise == slug and "check" in cell.tags
        if marked or re.search(rf"^labkit\.(?:check|challenge)\(['\"]{slug}['\"]", cell.source, re.MULTILINE):
            places.append(cell.position)
    return max(places, default=code.cells[-1].position + 1 if code.cells else 1)


def where(submitted: Sequence[SubmittedCell], asked: Asked) -> str:
    """Return in words where an answer is that cannot be taken."""
    wanted, kind = ("Markdown", "text") if asked.task == "write" else ("code", "code")
    for each in submitted:
        if (each.kind == "code") == (kind == "code"):
            continue
        begins = asked.provides and all(
            re.search(rf"^\s*(?:def|class) {name}\b", each.source, re.M) for name in asked.provides
        )
        if asked.marks(each) or begins:
            held = "code" if each.kind == "code" else "Markdown" if each.kind == "markdown" else "raw text"
            return f"cell {each.position} of the file holds it as {held}; make it a {wanted} cell and hand in again"
    return "its cell was not found"
