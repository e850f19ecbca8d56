"""Names of lines beside their ends, each with a piece of its line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.widgets.scene import Line, Mark, Text

_APART = 15.0
"""Pixels from one name to the next, at least."""


@dataclass(frozen=True)
class Ending:
    """Where a line ends.

    Attributes:
        name: Of the line.
        y: The height at which it ends.
        colour: Of the line.
        dash: Of the line.
    """

    name: str
    y: float
    colour: str
    dash: str


def names_at(endings: Sequence[Ending], x: float, low: float, high: float) -> list[Mark]:
    """Return the names right of x, as near to their lines' ends as they go without one over another.

    Args:
        endings: Where lines end.
        x: Where they do, from the left.
        low: The least height of a name.
        high: The largest.
    """
    order = sorted(endings, key=lambda ending: ending.y)
    heights: list[float] = []
    for ending in order:
        heights.append(max(ending.y, heights[-1] + _APART if heights else low))
    below = high
    for place in reversed(range(len(order))):
        heights[place] = min(heights[place], below)
        below = heights[place] - _APART
    marks: list[Mark] = []
    for ending, y in zip(order, heights, strict=True):
        marks.append(Line(((x + 8, y), (x + 30, y)), ending.colour, 3, dash=ending.dash))
        marks.append(Text(x + 35, y + 4, ending.name, 10.5))
    return marks
