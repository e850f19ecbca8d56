"""Cutting answers out of an exercise's cell: what lies between the markers goes, a named gap stays.

::

    # BEGIN SOLUTION chunk_bounds
    ...                                               ->  raise NotImplementedError("Exercise 2.3: Chunk bounds")
    # END SOLUTION

All gaps of a cell say the same: the exercise's number and title, and no recipe. Markers at the left margin hold a
private piece of the answer (a function of its own, an import); they leave a comment.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

_BEGIN = re.compile(r"^(?P<indent>\s*)# BEGIN SOLUTION (?P<exercise>\w+)\s*$")
_END = re.compile(r"^\s*# END SOLUTION\s*$")
_LIKE = re.compile(r"#\W*(begin|end)\W+(solution|answer)", re.IGNORECASE)


@dataclass(frozen=True)
class Cut:
    """One piece of an answer.

    Attributes:
        exercise: The exercise it belongs to.
        lines: The answer's own lines, as written.
        offset: Line of the BEGIN marker within the cell, from 0.
    """

    exercise: str
    lines: tuple[str, ...]
    offset: int


class MarkerError(ValueError):
    """A marker is wrong. ``offset`` is its line within the cell, from 0."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def without_markers(source: str) -> str:
    """Return a cell's source with its answers, and without the markers around them."""
    return "\n".join(line for line in source.split("\n") if not _BEGIN.match(line) and not _END.match(line))


def cut(source: str, says: str) -> tuple[str, tuple[Cut, ...]]:
    """Return a cell's source with its answers replaced by gaps, and what was cut.

    Args:
        source: The cell's.
        says: What each gap tells the learner, "Exercise 2.3: Chunk bounds".

    Raises:
        MarkerError: If a marker is malformed, has no partner, or encloses nothing.
    """
    kept: list[str] = []
    cuts: list[Cut] = []
    answer: list[str] = []
    opened: re.Match[str] | None = None
    start = 0
    for offset, line in enumerate(source.split("\n")):
        begin = _BEGIN.match(line)
        if begin and opened:
            raise MarkerError(
                f"BEGIN SOLUTION before the one {offset - start} lines above has its END SOLUTION; end that first.",
                offset,
            )
        if begin:
            opened, start, answer = begin, offset, []
        elif _END.match(line):
            if not opened:
                raise MarkerError("END SOLUTION without a BEGIN SOLUTION before it.", offset)
            if not any(each.strip() for each in answer):
                raise MarkerError("BEGIN and END SOLUTION with no answer between them.", start)
            cuts.append(Cut(opened["exercise"], tuple(answer), start))
            kept.append(opened["indent"] + gap(says, inside=bool(opened["indent"])))
            opened = None
        elif _LIKE.search(line):
            raise MarkerError(
                f"{line.strip()!r} looks like a marker; write `# BEGIN SOLUTION chunk_bounds` or `# END SOLUTION`.",
                offset,
            )
        elif opened:
            answer.append(line)
        else:
            kept.append(line)
    if opened:
        raise MarkerError("BEGIN SOLUTION without an END SOLUTION in the same cell.", start)
    return "\n".join(kept), tuple(cuts)


def has_marker(source: str) -> int | None:
    """Return the first line (from 0) that is or resembles a marker, or None."""
    for offset, line in enumerate(source.split("\n")):
        if _LIKE.search(line):
            return offset
    return None


def gap(says: str, *, inside: bool = True) -> str:
    """Return the line that stands for a cut answer: it raises inside a function, and is a comment outside."""
    return f"raise NotImplementedError({json.dumps(says, ensure_ascii=False)})" if inside else f"# {says}"
