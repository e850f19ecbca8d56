"""Collectives on which ranks do not agree: gloo takes the bytes for what it was told, and looks at no other rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from labkit.launch.recording.matching import where
from labkit.timeline.span import Problem
from labkit.torch_port.operations import BY_KIND

_SIZES_VARY = ("all_to_all", "all_to_all_single")


def disagreements(rows: dict[str, Any]) -> list[Problem]:
    """Return a problem for each group whose ranks called other things: its first, because others may follow from it.

    Args:
        rows: Columns rank, kind, group, number, bytes, source and meaning.
    """
    calls = np.flatnonzero(np.isin(rows["kind"], tuple(BY_KIND)))
    groups, of = np.unique(rows["group"][calls], return_inverse=True)
    order = np.lexsort((rows["rank"][calls], rows["number"][calls], of))
    calls, of = calls[order], of[order]
    one, other = calls[:-1], calls[1:]
    same = (of[:-1] == of[1:]) & (rows["number"][one] == rows["number"][other])
    sized = ~np.isin(rows["kind"][one], _SIZES_VARY)
    differ = (rows["kind"][one] != rows["kind"][other]) | (rows["meaning"][one] != rows["meaning"][other])
    differ |= sized & (rows["bytes"][one] != rows["bytes"][other])
    found: dict[int, Problem] = {}
    for place in np.flatnonzero(same & differ).tolist():
        found.setdefault(int(of[place]), _problem(rows, int(one[place]), int(other[place])))
    return [found[number] for number in range(len(groups)) if number in found]


def _problem(rows: dict[str, Any], first: int, row: int) -> Problem:
    text = (
        f"Rank {rows['rank'][row]} called {_said(rows, row)} as collective {rows['number'][row] + 1} of its group, "
        f"where rank {rows['rank'][first]} called {_said(rows, first)}. All ranks of a group must call the same "
        "collectives in the same order, with the same sizes and dtypes."
    )
    return Problem("mismatch", int(rows["rank"][row]), text, row)


def _said(rows: dict[str, Any], row: int) -> str:
    meaning = f" {rows['meaning'][row]}," if rows["meaning"][row] else ""
    return f"{rows['kind'][row]}:{meaning} {rows['bytes'][row]} B{where(rows, row)}"
