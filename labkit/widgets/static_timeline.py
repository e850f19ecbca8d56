"""A timeline as a PNG: one row per rank and lane, exact shares in every pixel, idle time left empty.

Drawn without pyplot, so it needs no display and leaves no state; on an opaque white ground, so it reads the same on a
light and on a dark page.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from labkit.timeline.grouping import by_rank_and_lane
from labkit.timeline.summary import summary
from labkit.timeline.timeline import Timeline
from labkit.units import format_time
from labkit.widgets.frame import draw_axis, draw_legend
from labkit.widgets.layout import (
    BOTTOM,
    LEFT,
    MOST_RANKS,
    NUM_COLUMNS,
    RIGHT,
    TOP,
    RowLayout,
    picture_rows,
    row_layout,
    time_unit,
)
from labkit.widgets.marks import GREY, MESSAGE_COLOUR, SMALL, draw_messages, label_bars, label_rows, lanes_in_words
from labkit.widgets.memory_rows import draw_memory
from labkit.widgets.palette import CATEGORIES, categories_of
from labkit.widgets.shares import share_matrix

MAX_BYTES = 60_000
_PALETTE_HELPS = 6  # a palette makes a picture this many times smaller at best
_DPI = 100


def to_png(timeline: Timeline, title: str = "") -> bytes:
    """Return the picture, at most 60 KB whatever the timeline's size; without a title it is titled with its size.

    Where the exact picture is larger, shades are rounded to sixteenths, then columns are widened; the shares of these
    are exact again.
    """
    columns = NUM_COLUMNS
    while True:
        image = Image.fromarray(_pixels(timeline, columns, title))
        png = _encoded(image)
        if MAX_BYTES < len(png) < _PALETTE_HELPS * MAX_BYTES:
            png = _encoded(image.quantize(palette=_palette(), dither=Image.Dither.NONE))
        if len(png) <= MAX_BYTES:
            return png
        columns //= 2 if len(png) < _PALETTE_HELPS * MAX_BYTES else 4


def picture_shares(timeline: Timeline, num_columns: int = NUM_COLUMNS) -> npt.NDArray[np.float64]:
    """Return what the picture is painted from, shape (rows, categories, num_columns); see :func:`share_matrix`."""
    rows = picture_rows(timeline)
    shares = np.zeros((len(rows), len(CATEGORIES), num_columns))
    category = categories_of(timeline)
    first = int(timeline.start_ns.min()) if len(timeline) else 0
    window = (first, first + max(timeline.makespan_ns, 1))
    groups = by_rank_and_lane(timeline)
    for row, place in enumerate(rows):
        if place in groups:
            mine = groups[place]
            shares[row] = share_matrix(
                timeline.start_ns[mine], timeline.end_ns[mine], category[mine], len(CATEGORIES), window, num_columns
            )
    return shares


def paint(shares: npt.NDArray[np.float64], layout: RowLayout, width: int) -> npt.NDArray[np.uint8]:
    """Return the rows as pixels, shape (layout.height, width, 3): colours mixed with white by their shares."""
    colours = np.array([_rgb(category.colour) for category in CATEGORIES])
    hatched = np.array([category.hatched for category in CATEGORIES])
    pale = 0.75 + 0.25 * colours
    x = np.arange(width)
    image = np.ones((layout.height, width, 3))
    for top, row in zip(layout.tops, shares, strict=True):
        share = row[:, x * row.shape[1] // width].T
        plain = 1 - share.sum(1, keepdims=True) + share[:, ~hatched] @ colours[~hatched]
        stripes = [share[:, hatched] @ shade[hatched] for shade in (colours, pale)]
        for y in range(top, top + layout.bar_height):
            image[y] = plain + np.where(((x + y) % 6 < 3)[:, None], *stripes)
    return np.asarray(np.rint(image.clip(0, 1) * 255), dtype=np.uint8)


def draw(timeline: Timeline, num_columns: int = NUM_COLUMNS, title: str = "") -> Figure:
    """Return the picture as a matplotlib figure with an Agg canvas."""
    layout = row_layout(timeline)
    shares = picture_shares(timeline, num_columns)
    width, height = LEFT + NUM_COLUMNS + RIGHT, TOP + layout.height + BOTTOM
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((LEFT / width, BOTTOM / height, NUM_COLUMNS / width, layout.height / height))
    unit, unit_ns = time_unit(timeline.makespan_ns)
    span = max(timeline.makespan_ns, 1) / unit_ns
    axes.imshow(
        paint(shares, layout, NUM_COLUMNS), aspect="auto", interpolation="nearest", extent=(0, span, layout.height, 0)
    )
    axes.set_axis_off()
    draw_axis(figure, span, f"time ({unit}){lanes_in_words(timeline, layout)}", width, height)
    label_rows(axes, timeline, layout)
    label_bars(axes, timeline, layout, span)
    draw_memory(axes, timeline, layout, span)
    has_arrows = draw_messages(axes, timeline, layout, span)
    ranks = f"{timeline.num_ranks} rank{'s' * (timeline.num_ranks != 1)}"
    title = title or f"{ranks}, {format_time(timeline.makespan_ns)}"
    if timeline.num_ranks > MOST_RANKS:
        title += f" ({MOST_RANKS} of the ranks shown)"
    figure.text(12 / width, 1 - 12 / height, title, fontsize=11, weight="bold", va="top")
    numbers = summary(timeline).splitlines()[0].split(", ", 2)[2:]
    figure.text(12 / width, 1 - 32 / height, "".join(numbers), fontsize=SMALL, color=GREY, va="top")
    present = [category for number, category in enumerate(CATEGORIES) if shares[:, number].any()]
    draw_legend(figure, present, width, height, has_arrows=has_arrows)
    return figure


def _palette() -> Image.Image:
    """Return every colour in sixteen shades down to white, so that reducing a picture keeps its colours true."""
    colours = [*(category.colour for category in CATEGORIES), MESSAGE_COLOUR, GREY]
    solid = np.array([_rgb(colour) for colour in colours])
    pale = 0.75 + 0.25 * solid[[number for number, category in enumerate(CATEGORIES) if category.hatched]]
    shade = np.arange(1, 17)[:, None, None] / 16
    entries = (1 - shade) + shade * np.concatenate((solid, pale))[None]
    # Near white there is white alone: the search for the nearest entry is coarse, and idle must stay exactly white.
    visible = entries.reshape(-1, 3)[entries.reshape(-1, 3).min(1) < 0.94]
    flat = np.concatenate((np.ones((1, 3)), visible))
    image = Image.new("P", (1, 1))
    image.putpalette(np.rint(flat * 255).astype(np.uint8).tobytes())
    return image


def _encoded(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _pixels(timeline: Timeline, num_columns: int, title: str) -> npt.NDArray[np.uint8]:
    canvas: Any = draw(timeline, num_columns, title).canvas
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _rgb(colour: str) -> tuple[float, float, float]:
    return int(colour[1:3], 16) / 255, int(colour[3:5], 16) / 255, int(colour[5:7], 16) / 255
