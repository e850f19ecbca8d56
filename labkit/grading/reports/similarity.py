"""Which submissions resemble each other more than their task explains: a hint where to look, never a verdict.

Exercise cells are cut into short runs of tokens ("shingles") in which names are all alike, so that renaming hides
nothing; comments and texts are left out. Runs that stand in the cell as it was handed out do not count, and a run
weighs less, the more students wrote it; what nine of 24 share still weighs. Source: Schleimer, Wilkerson and Aiken
2003, "Winnowing".
"""

from __future__ import annotations

import builtins
import keyword
import math
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from typing import Any

import numpy as np
import numpy.typing as npt

from labkit.grading.reports.idle_code import without_idle
from labkit.lessons.lesson import CODE_TASKS
from labkit.lessons.submitted_cell import SubmittedCell

_LENGTH = 7
_MOST_TOKENS = 20_000
_MOST_LETTERS = 64_000
_MOST_OF_ONE = 4000
"""Runs of one submission that are looked at, many times an honest one's: of more, those with the least numbers, which
are the same ones in whoever has them."""
_LEAST_SHARE = 0.6
_LEAST_RARE = 12
_MOST_PAIRS = 40
_BLOCK = 4096
# A text that does not end takes all that is left: nothing is looked at twice, however odd a cell is.
_TOKEN = re.compile(
    r"(?P<text>[rbfuRBFU]{0,2}(?:"
    r'"""(?:[^\\]|\\.)*?(?:"""|\\?\Z)|\'\'\'(?:[^\\]|\\.)*?(?:\'\'\'|\\?\Z)'
    r'|"(?:[^"\\\n]|\\.)*(?:"|(?=\n)|\\?\Z)|\'(?:[^\'\\\n]|\\.)*(?:\'|(?=\n)|\\?\Z)))'
    r"|(?P<comment>#[^\n]*)|(?P<word>[^\W\d]\w*)|(?P<number>\d[\w.]*)|(?P<sign>[^\s\w])",
    re.DOTALL,
)
_KEPT = frozenset(keyword.kwlist) | frozenset(dir(builtins))


@dataclass(frozen=True)
class Pair:
    """Two submissions that resemble each other.

    Attributes:
        first: Name of one.
        second: Name of the other.
        share: How much of the smaller one's own code the other has too, 0 to 1; what many wrote weighs little.
        exercises: Where, most first.
    """

    first: str
    second: str
    share: float
    exercises: tuple[str, ...]


def answers(cells: Iterable[SubmittedCell], pristine: Mapping[str, Any]) -> dict[str, str]:
    """Return the source of a submission's exercise cells, by exercise; cells left as handed out are not among them."""
    handed_out = {
        str(cell["id"]): (str(cell["metadata"]["labkit"]["exercise"]), str(cell["source"]))
        for cell in pristine["cells"]
        if not set(CODE_TASKS).isdisjoint(cell["metadata"].get("tags", []))
    }
    found: dict[str, str] = {}
    for cell in cells:
        number, source = handed_out.get(cell.id, ("", ""))
        if number and number not in found and cell.source.strip() != source.strip():
            found[number] = cell.source[:_MOST_LETTERS]
    return found


def similar(submissions: Mapping[str, Mapping[str, str]], handed_out: Mapping[str, str]) -> list[Pair]:
    """Return the pairs that resemble each other most, at most 40.

    Args:
        submissions: For each student the source of each exercise cell.
        handed_out: The source of each exercise cell as it was given to all.
    """
    skeleton = {number: shingles(source) for number, source in handed_out.items()}
    own = {name: _own(cells, skeleton) for name, cells in submissions.items()}
    holders: dict[tuple[str, int], list[int]] = defaultdict(list)
    names = sorted(own)
    for row, name in enumerate(names):
        for each in own[name]:
            holders[each].append(row)
    weight = {each: math.log((len(names) + 1) / len(rows)) for each, rows in holders.items()}
    total = np.array([sum(sorted(weight[each] for each in own[name])) for name in names])
    few = max(3, len(names) // 10)
    least = _LEAST_RARE * math.log((len(names) + 1) / few)
    shared = _shared(holders, weight, len(names))
    share = shared / np.maximum(np.minimum(total[:, None], total[None, :]), 1e-9)
    pairs = []
    for first, second in zip(*np.nonzero(np.triu((share >= _LEAST_SHARE) & (shared >= least), 1)), strict=True):
        both = own[names[first]] & own[names[second]]
        by_exercise: dict[str, float] = defaultdict(float)
        for each in sorted(both):
            by_exercise[each[0]] += weight[each]
        least_part = sum(by_exercise.values()) / 20
        listed = sorted(by_exercise, key=lambda number: (-by_exercise[number], number))
        exercises = tuple(number for number in listed if by_exercise[number] >= least_part)[:4]
        pairs.append(Pair(names[first], names[second], round(min(1.0, float(share[first, second])), 4), exercises))
    return sorted(pairs, key=lambda pair: (-pair.share, pair.first, pair.second))[:_MOST_PAIRS]


def _own(cells: Mapping[str, str], skeleton: Mapping[str, frozenset[int]]) -> set[tuple[str, int]]:
    """Return the runs of one submission that were not handed out, by exercise."""
    found = {
        (number, each)
        for number, source in cells.items()
        for each in shingles(without_idle(source)) - skeleton.get(number, frozenset())
    }
    return (
        found if len(found) <= _MOST_OF_ONE else set(nsmallest(_MOST_OF_ONE, found, key=lambda run: (run[1], run[0])))
    )


def _shared(
    holders: Mapping[tuple[str, int], Sequence[int]], weight: Mapping[tuple[str, int], float], count: int
) -> npt.NDArray[np.float64]:
    """Return for each two students the weight of the runs they share."""
    shared = np.zeros((count, count))
    several = sorted(each for each, rows in holders.items() if len(rows) > 1)
    for start in range(0, len(several), _BLOCK):
        block = several[start : start + _BLOCK]
        has = np.zeros((count, len(block)))
        for column, each in enumerate(block):
            has[holders[each], column] = 1.0
        shared += (has * [weight[each] for each in block]) @ has.T
    return shared


@lru_cache(maxsize=256)
def shingles(source: str, *, names: bool = False) -> frozenset[int]:
    """Return a number for each run of seven tokens; with their names, or names all alike."""
    listed = tokens(source, names=names)
    return frozenset(
        zlib.crc32(" ".join(listed[at : at + _LENGTH]).encode("utf-8", "replace"))
        for at in range(len(listed) - _LENGTH + 1)
    )


def tokens(source: str, *, names: bool = False) -> Sequence[str]:
    """Return the tokens of a cell, names all alike unless they are asked for; comments and texts are left out."""
    found: list[str] = []
    for match in _TOKEN.finditer(source[:_MOST_LETTERS]):
        text = match.group()
        if match.lastgroup in ("comment", "text"):
            continue
        if not names and match.lastgroup == "word" and text not in _KEPT and not (found and found[-1] == "."):
            text = "name"
        found.append(text)
        if len(found) >= _MOST_TOKENS:
            break
    return found
