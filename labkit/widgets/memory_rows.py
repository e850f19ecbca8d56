"""What each rank held over time, as a low area under its rows, with an arrow to the most it held and that beside it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from labkit.timeline.memory import memory_curve
from labkit.timeline.timeline import Timeline
from labkit.units import format_bytes
from labkit.widgets.axis_and_legend import SMALL
from labkit.widgets.canvas import Canvas
from labkit.widgets.colours import GREY, INK, rgb
from labkit.widgets.layout import LEFT, NUM_COLUMNS, TOP, RowLayout, window_of

_OPACITY = 0.35


def memory_columns(timeline: Timeline, rank: int, num_columns: int = NUM_COLUMNS) -> npt.NDArray[np.int64]:
    """Return the most bytes a rank held during each column of the picture, shape (num_columns,).

    Args:
        timeline: One with a memory table.
        rank: Which rank.
        num_columns: Columns of equal time from the first span's begin to the last one's end.
    """
    times, held = memory_curve(timeline, rank)
    first, span = window_of(timeline)
    place = np.clip((times - first) * num_columns // span, 0, num_columns - 1)
    most = np.zeros(num_columns, dtype=np.int64)
    np.maximum.at(most, place, held)
    # What was there when a column began lasts into it.
    last = np.searchsorted(place, np.arange(num_columns), side="left") - 1
    before = np.where(last >= 0, held[np.maximum(last, 0)], 0) if len(held) else most
    return np.maximum(most, before)


def draw_memory(canvas: Canvas, timeline: Timeline, layout: RowLayout) -> None:
    """Draw the areas, all ranks to one scale.

    Args:
        canvas: Where the rows are painted.
        timeline: What was recorded.
        layout: Where the rows lie; nothing is drawn where it leaves no room for memory.
    """
    if not layout.memory_height:
        return
    curves = {rank: memory_columns(timeline, rank) for rank in dict.fromkeys(rank for rank, _ in layout.rows)}
    largest = max((int(curve.max()) for curve in curves.values()), default=0)
    lines = layout.memory_height - 1
    for number, curve in enumerate(curves.values()):
        base = TOP + number * (layout.rank_height + layout.rank_gap) + layout.rank_height
        # How much of each pixel lies under the curve.
        high, wide = canvas.scale * lines, curve.repeat(canvas.scale)
        filled = np.clip(high * wide / max(largest, 1) - np.arange(high)[::-1, None], 0, 1)[:, :, None]
        canvas.pixels(LEFT, base - lines, np.rint(255 * _OPACITY * filled * [*rgb(GREY), 1]).astype(np.uint8))
        middle = base - layout.memory_height / 2
        peak = int(curve.argmax())
        canvas.arrows([(LEFT + peak, base, LEFT + peak, base - lines * curve[peak] / max(largest, 1))], INK, 1.0)
        canvas.words(LEFT - 6, middle, "memory, ↑ peak", SMALL, colour=GREY, across="right")
        canvas.words(
            LEFT + NUM_COLUMNS + 46, middle, format_bytes(int(curve.max())), SMALL, colour=GREY, across="right"
        )
