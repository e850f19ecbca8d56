"""What each rank held over time, as a low area under its rows, with the most it held beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from labkit.timeline.memory import memory_curve
from labkit.timeline.timeline import Timeline
from labkit.units import format_bytes
from labkit.widgets.layout import NUM_COLUMNS, RowLayout, shown_ranks
from labkit.widgets.marks import GREY, SMALL

_SHADE = "#B5B5B5"


def memory_columns(timeline: Timeline, rank: int, num_columns: int = NUM_COLUMNS) -> npt.NDArray[np.int64]:
    """Return the most bytes a rank held during each column of the picture, shape (num_columns,).

    Args:
        timeline: One with a memory table.
        rank: Which rank.
        num_columns: Columns of equal time from the first span's begin to the last one's end.
    """
    times, held = memory_curve(timeline, rank)
    first, span = (int(timeline.start_ns.min()), max(timeline.makespan_ns, 1)) if len(timeline) else (0, 1)
    place = np.clip((times - first) * num_columns // span, 0, num_columns - 1)
    most = np.zeros(num_columns, dtype=np.int64)
    np.maximum.at(most, place, held)
    # What was there when a column began lasts into it.
    last = np.searchsorted(place, np.arange(num_columns), side="left") - 1
    before = np.where(last >= 0, held[np.maximum(last, 0)], 0) if len(held) else most
    return np.maximum(most, before)


def draw_memory(axes: Any, timeline: Timeline, layout: RowLayout, span: float) -> None:
    """Draw the areas, all ranks to one scale.

    Args:
        axes: Where the rows are painted, y in pixels from the top.
        timeline: What was recorded.
        layout: Where the rows lie; nothing is drawn where it leaves no room for memory.
        span: Right end of the axis, in its unit.
    """
    if not layout.memory_height:
        return
    curves = {rank: memory_columns(timeline, rank) for rank in shown_ranks(timeline)}
    largest = max((int(curve.max()) for curve in curves.values()), default=0)
    x = np.linspace(0, span, NUM_COLUMNS + 1)
    outside = axes.get_yaxis_transform()
    style: dict[str, Any] = {"fontsize": SMALL, "color": GREY, "transform": outside, "ha": "right", "va": "center"}
    for number, curve in enumerate(curves.values()):
        top = number * (layout.rank_height + layout.rank_gap)
        base = top + layout.rank_height
        height = (layout.memory_height - 1) * curve / max(largest, 1)
        axes.fill_between(x, base, base - np.append(height, height[-1]), step="post", color=_SHADE, linewidth=0)
        middle = base - layout.memory_height / 2
        axes.text(-0.008, middle, "memory", **style)
        axes.text(1 + 46 / NUM_COLUMNS, middle, format_bytes(int(curve.max())), **style)
