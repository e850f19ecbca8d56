"""Where the rows of a timeline picture lie, in pixels, and which unit its axis has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labkit.timeline.span import Lane
from labkit.timeline.timeline import Timeline

NUM_COLUMNS = 760
LEFT, RIGHT, TOP, BOTTOM = 118, 62, 62, 44
_FULL_BAR, _ROOM = 16, 620


@dataclass(frozen=True)
class RowLayout:
    """Rows from top to bottom.

    Attributes:
        tops: First pixel of each row's bar.
        bar_height: Pixels of a bar, 1 to 16.
        rank_gap: Empty pixels between two ranks.
        rank_height: Pixels of all rows of one rank.
        height: Pixels in all.
    """

    tops: tuple[int, ...]
    bar_height: int
    rank_gap: int
    rank_height: int
    height: int


def picture_rows(timeline: Timeline) -> list[tuple[int, Lane]]:
    """Return the (rank, lane) of each row, top to bottom; lanes no rank uses are left out."""
    used = [lane for lane in Lane if np.any(timeline.lane == lane)]
    return [(rank, lane) for rank in range(timeline.num_ranks) for lane in used]


def row_layout(timeline: Timeline) -> RowLayout:
    """Return bars as high as 620 pixels allow, at least one pixel each."""
    rows = picture_rows(timeline)
    lanes = max(len(rows) // max(timeline.num_ranks, 1), 1)
    bar = max(1, min(_FULL_BAR, _ROOM // max(len(rows), 1) - 3))
    lane_gap, rank_gap = (2, 9) if bar >= 8 else (0, 2) if bar >= 2 else (0, 0)
    rank_height = lanes * bar + (lanes - 1) * lane_gap
    tops = [
        rank * (rank_height + rank_gap) + lane * (bar + lane_gap)
        for rank in range(timeline.num_ranks)
        for lane in range(lanes)
    ]
    tops = tops[: len(rows)]
    height = max(timeline.num_ranks * (rank_height + rank_gap), 20)
    return RowLayout(tuple(tops), bar, rank_gap, rank_height, height)


def time_unit(duration_ns: int) -> tuple[str, int]:
    """Return the unit for an axis of this length, and its nanoseconds: the largest in which the axis is at least 1."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if duration_ns >= size:
            return unit, size
    return "ns", 1
