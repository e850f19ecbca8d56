"""What is written over the bars of a timeline picture: names, shares, and an arrow for each message."""

from __future__ import annotations

from typing import Any

import numpy as np

from labkit.timeline.intervals import total, union
from labkit.timeline.span import Lane
from labkit.timeline.timeline import Timeline
from labkit.widgets.layout import LEFT, NUM_COLUMNS, RowLayout, picture_rows
from labkit.widgets.palette import categories_of

SMALL, TEXT = 7.5, 9.0
GREY = "#444444"
MESSAGE_COLOUR = "#D55E00"
_MOST_ARROWS = 64
_LANES = {Lane.COMPUTE: "compute", Lane.COMMUNICATION: "comm", Lane.HOST: "host"}


def label_rows(axes: Any, timeline: Timeline, layout: RowLayout) -> None:
    """Name the rows on the left, give the share of time each is busy on the right."""
    rows = picture_rows(timeline)
    makespan = max(timeline.makespan_ns, 1)
    last_rank = last_lane = -100.0
    outside = axes.get_yaxis_transform()
    for (rank, lane), top in zip(rows, layout.tops, strict=True):
        middle = top + layout.bar_height / 2
        if (rank, lane) == (rank, rows[0][1]):
            if top > 0 and layout.rank_gap:
                axes.axhline(top - layout.rank_gap / 2, color="#DDDDDD", linewidth=0.6, xmin=-0.2, clip_on=False)
            block = layout.rank_height / 2
            if top + block - last_rank >= 12:
                last_rank = top + block
                place = -LEFT / NUM_COLUMNS + 0.016
                axes.text(place, last_rank, f"rank {rank}", transform=outside, fontsize=TEXT, va="center")
        if middle - last_lane >= 10:
            last_lane = middle
            mine = (timeline.rank == rank) & (timeline.lane == lane)
            share = total(union(timeline.start_ns[mine], timeline.end_ns[mine])) / makespan
            text = {"fontsize": SMALL, "va": "center", "color": GREY, "transform": outside}
            axes.text(-0.008, middle, _LANES[lane], ha="right", **text)
            axes.text(1 + 46 / NUM_COLUMNS, middle, f"{100 * share:.0f} %", ha="right", **text)
    if rows:
        style = {"fontsize": SMALL, "color": GREY, "va": "bottom", "ha": "right", "transform": outside}
        axes.text(1 + 46 / NUM_COLUMNS, -4, "busy", **style)


def label_bars(axes: Any, timeline: Timeline, layout: RowLayout, span: float) -> None:
    """Write names into the bars that are wide enough and not covered by others."""
    if layout.bar_height < 12 or len(timeline) > 2000:
        return
    first = int(timeline.start_ns.min()) if len(timeline) else 0
    pixel_ns = max(timeline.makespan_ns, 1) / NUM_COLUMNS
    for (rank, lane), top in zip(picture_rows(timeline), layout.tops, strict=True):
        rows = np.flatnonzero((timeline.rank == rank) & (timeline.lane == lane))
        for row in rows.tolist():
            start, end = int(timeline.start_ns[row]), int(timeline.end_ns[row])
            text = str(timeline.name[row]) + (f" {timeline.peer[row]}" if timeline.peer[row] >= 0 else "")
            others = rows[rows != row]
            meets = (timeline.start_ns[others] < end) & (timeline.end_ns[others] > start)
            if (end - start) / pixel_ns < 5.2 * len(text) + 8 or meets.any() or timeline.kind[row] == "wait":
                continue
            dark_ground = categories_of(timeline)[row] not in (1, 5)
            middle = ((start + end) / 2 - first) / max(timeline.makespan_ns, 1) * span
            colour = "white" if dark_ground else "black"
            axes.text(middle, top + layout.bar_height / 2, text, fontsize=6.5, color=colour, ha="center", va="center")


def draw_messages(axes: Any, timeline: Timeline, layout: RowLayout, span: float) -> bool:
    """Draw an arrow from the begin of each send to the end of its receive; return False where they are too many."""
    messages = np.unique(timeline.flow[timeline.flow >= 0])
    if not 0 < len(messages) <= _MOST_ARROWS or layout.bar_height < 8:
        return False
    top_of = dict(zip(picture_rows(timeline), layout.tops, strict=True))
    first = int(timeline.start_ns.min())
    scale = span / max(timeline.makespan_ns, 1)
    for flow in messages.tolist():
        ends = np.flatnonzero(timeline.flow == flow).tolist()
        sends = [row for row in ends if timeline.kind[row] in ("send", "isend")]
        receives = [row for row in ends if timeline.kind[row] in ("recv", "irecv")]
        if not sends or not receives:
            continue
        src, dst = (top_of[int(timeline.rank[row]), Lane.COMMUNICATION] for row in (sends[0], receives[0]))
        down = dst > src
        axes.annotate(
            "",
            xy=((int(timeline.end_ns[receives[0]]) - first) * scale, dst + (0 if down else layout.bar_height)),
            xytext=((int(timeline.start_ns[sends[0]]) - first) * scale, src + (layout.bar_height if down else 0)),
            arrowprops={
                "arrowstyle": "-|>,head_width=0.12,head_length=0.25",
                "color": MESSAGE_COLOUR,
                "linewidth": 0.7,
                "alpha": 0.8,
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )
    return True
