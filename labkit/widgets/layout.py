"""Where the rows of a timeline picture lie, in pixels, and which unit its axis has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from labkit.timeline.memory import changing_memory
from labkit.timeline.messages import of_kind
from labkit.timeline.metrics import busy_ns, wait_ns
from labkit.timeline.similar_ranks import similar_ranks
from labkit.timeline.span import Lane
from labkit.timeline.timeline import Timeline
from labkit.words import join

NUM_COLUMNS = 760
LEFT, RIGHT, TOP, BOTTOM = 118, 62, 62, 44
MOST_RANKS = 64
_NOTHING = 0.005
"""Of the time: a lane in which no rank is for longer has no row."""
_SHORT, _LISTED = 5, 8
"""Letters for which there is room beside the names of lanes, with a word and without."""
_COLOURED = {"forward", "backward", "optimizer"}
"""Names of regions that the colours of what runs in them say, too; as in js/timeline/layout.js."""
_MOST_COMPARED = 50_000
"""Spans of which it is found out which ranks are alike; of more, all ranks have rows."""


@dataclass(frozen=True)
class RowLayout:
    """Rows from top to bottom.

    Attributes:
        rows: The (rank, lane) of each row.
        tops: First pixel of each row's bar.
        bar_height: Pixels of a bar, 3 to 16.
        rank_gap: Empty pixels between two ranks.
        rank_height: Pixels of all rows of one rank.
        height: Pixels in all.
        memory_height: Pixels of the lowest row of each rank, what its memory held; 0 where there is none.
        names: What stands before the rows of a rank that others are alike, by that rank.
    """

    rows: tuple[tuple[int, Lane], ...]
    tops: tuple[int, ...]
    bar_height: int
    rank_gap: int
    rank_height: int
    height: int
    memory_height: int = 0
    names: Mapping[int, str] = field(default_factory=dict)


def shown_ranks(timeline: Timeline, needed: int = -1) -> list[int]:
    """Return the ranks that get rows: all, or 64 evenly spaced ones including the first and the last.

    Args:
        timeline: What was recorded.
        needed: A rank that gets a row in any case, in place of the nearest of these; -1 for none.
    """
    if timeline.num_ranks <= MOST_RANKS:
        return list(range(timeline.num_ranks))
    spaced = [round(place * (timeline.num_ranks - 1) / (MOST_RANKS - 1)) for place in range(MOST_RANKS)]
    if needed >= 0 and needed not in spaced:
        spaced[min(range(MOST_RANKS), key=lambda place: abs(spaced[place] - needed))] = needed
    return spaced


def folded(timeline: Timeline, needed: int = -1, *, is_beside: bool = False) -> list[tuple[int, list[int]]]:
    """Return each rank that has rows in a picture, and those it stands for: one of those that are alike, if many.

    Args:
        timeline: What was recorded.
        needed: A rank that has rows of its own in any case; -1 for none.
        is_beside: Whether another run stands beside it: then few ranks that exchange messages are folded, too.
    """
    shown = shown_ranks(timeline, needed)
    groups = similar_ranks(timeline, shown, even_few=is_beside) if len(timeline) <= _MOST_COMPARED else []
    groups = [[rank for rank in group if rank != needed] for group in groups]
    stands_for = {group[0]: group for group in groups}
    hidden = {rank for group in groups for rank in group[1:]}
    return [(rank, stands_for.get(rank, [rank])) for rank in shown if rank not in hidden]


def picture_rows(timeline: Timeline, needed: int = -1) -> list[tuple[int, Lane]]:
    """Return the (rank, lane) of each row, top to bottom; lanes no rank uses are left out, and ranks that are alike."""
    used = _shown_lanes(timeline)
    return [(rank, lane) for rank, _ in folded(timeline, needed) for lane in used]


def used_lanes(timeline: Timeline) -> list[Lane]:
    """Return the lanes that have rows, from the top: names above, then work. Waits are told by the time blocked."""
    seen = np.bincount(timeline.lane, minlength=len(Lane))
    if "wait" in timeline.kind_codes[0]:
        seen -= np.bincount(timeline.lane[of_kind(timeline, "wait")], minlength=len(Lane))
    return [lane for lane in (Lane.REGION, Lane.COMPUTE, Lane.COMMUNICATION, Lane.HOST) if seen[lane]]


def _shown_lanes(timeline: Timeline) -> list[Lane]:
    """Return the lanes of a picture: those used, but for one in which next to nothing is; on a page that is thin."""
    used = used_lanes(timeline)
    if Lane.COMPUTE in used and {*timeline.name[timeline.lane == Lane.REGION].tolist()} <= _COLOURED:
        used = [lane for lane in used if lane != Lane.REGION]
    return [lane for lane in used if lane == Lane.REGION or _holds_something(timeline, lane)] or used


def _holds_something(timeline: Timeline, lane: Lane) -> bool:
    """Return whether a rank is in a lane for longer than a page shows in words, or a message begins or ends there."""
    if (timeline.flow[timeline.lane == lane] >= 0).any():
        return True
    longest = int(busy_ns(timeline, [lane]).max())
    if lane == Lane.COMMUNICATION:
        longest = max(longest, int(wait_ns(timeline).max()))
    return longest >= _NOTHING * timeline.makespan_ns


def row_layout(timeline: Timeline, needed: int = -1, *, is_beside: bool = False) -> RowLayout:
    """Return bars of 3 to 16 pixels, so that all rows together stay below about 900.

    Where rows are high enough for a line of text each, a rank gets one more for its memory, if that of any
    changes; beside another run none does. A rank that is needed has rows, however many there are.
    """
    told = folded(timeline, needed, is_beside=is_beside)
    used, ranks = _shown_lanes(timeline), len(told)
    rows = [(rank, lane) for rank, _ in told for lane in used]
    names = {rank: _alike(many) for rank, many in told if many[1:]}
    lanes = max(len(rows) // max(ranks, 1), 1)
    bar = max(3, min(16, 760 // max(len(rows), 1) - 2))
    lane_gap, rank_gap = (2, 9) if bar >= 12 else (1, 5) if bar >= 6 else (0, 3)
    memory = bar + lane_gap if bar >= 12 and len(rows) and not is_beside and changing_memory(timeline) else 0
    rank_height = lanes * bar + (lanes - 1) * lane_gap + memory
    step = rank_height + rank_gap
    tops = [rank * step + lane * (bar + lane_gap) for rank in range(ranks) for lane in range(lanes)]
    return RowLayout(
        tuple(rows), tuple(tops[: len(rows)]), bar, rank_gap, rank_height, max(ranks * step, 20), memory, names
    )


def _alike(ranks: list[int]) -> str:
    """Return the numbers of ranks that are alike, "0 and 2" or "0,1,3-7"; how many they are where that is long."""
    if len(ranks) < 3:
        return join(ranks)
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    words = ",".join(f"{part[0]}-{part[-1]}" if len(part) > 2 else ",".join(map(str, part)) for part in parts)
    if len(words) <= _SHORT:
        return f"{words} alike"
    return words if len(words) <= _LISTED else f"{len(ranks)} alike"


def window_of(timeline: Timeline) -> tuple[int, int]:
    """Return the first begin, and how long all there is lasts, at least 1 ns: what the axis spans."""
    first, last = timeline.extent_ns
    return first, max(last - first, 1)


def time_unit(duration_ns: int) -> tuple[str, int]:
    """Return the unit for an axis of this length, and its nanoseconds: the largest in which the axis is at least 1."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if duration_ns >= size:
            return unit, size
    return "ns", 1
