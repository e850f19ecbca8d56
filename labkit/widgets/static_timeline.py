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
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from PIL import Image

from labkit.timeline.summary import summary
from labkit.timeline.timeline import Timeline
from labkit.units import format_time
from labkit.widgets.layout import LEFT, NUM_COLUMNS, RIGHT, RowLayout, picture_rows, row_layout, time_unit
from labkit.widgets.marks import GREY, MESSAGE_COLOUR, SMALL, TEXT, draw_messages, label_bars, label_rows
from labkit.widgets.palette import CATEGORIES, categories_of
from labkit.widgets.shares import share_matrix

MAX_BYTES = 60_000
_DPI = 100
_TOP, _BOTTOM = 62, 44


def to_png(timeline: Timeline) -> bytes:
    """Return the picture, at most 60 KB whatever the timeline's size.

    Where the exact picture is larger, its colours are reduced, then its columns widened; shares stay exact in each
    column.
    """
    columns = NUM_COLUMNS
    while True:
        image = Image.fromarray(_pixels(timeline, columns))
        for colours in (None, 128, 48):
            reduced = image if colours is None else image.quantize(colours, dither=Image.Dither.NONE)
            buffer = io.BytesIO()
            reduced.save(buffer, "PNG", optimize=True)
            if buffer.tell() <= MAX_BYTES:
                return buffer.getvalue()
        columns //= 2


def picture_shares(timeline: Timeline, num_columns: int = NUM_COLUMNS) -> npt.NDArray[np.float64]:
    """Return what the picture is painted from, shape (rows, categories, num_columns); see :func:`share_matrix`."""
    rows = picture_rows(timeline)
    shares = np.zeros((len(rows), len(CATEGORIES), num_columns))
    category = categories_of(timeline)
    first = int(timeline.start_ns.min()) if len(timeline) else 0
    window = (first, first + max(timeline.makespan_ns, 1))
    for row, (rank, lane) in enumerate(rows):
        mine = (timeline.rank == rank) & (timeline.lane == lane)
        if mine.any():
            shares[row] = share_matrix(
                timeline.start_ns[mine], timeline.end_ns[mine], category[mine], len(CATEGORIES), window, num_columns
            )
    return shares


def paint(shares: npt.NDArray[np.float64], layout: RowLayout, width: int) -> npt.NDArray[np.uint8]:
    """Return the rows as pixels, shape (layout.height, width, 3): colours mixed with white by their shares."""
    colours = np.array([_rgb(category.colour) for category in CATEGORIES])
    stripe_period = 6
    x = np.arange(width)
    image = np.ones((layout.height, width, 3))
    for top, row in zip(layout.tops, shares, strict=True):
        share = row[:, x * row.shape[1] // width].T
        idle = 1 - share.sum(1, keepdims=True)
        lines = []
        for phase in range(stripe_period):
            between = (x + phase) % stripe_period >= stripe_period // 2
            line = idle + 0.0
            for number, category in enumerate(CATEGORIES):
                pale = (between & category.hatched)[:, None]
                line = line + share[:, number : number + 1] * np.where(
                    pale, 0.75 + 0.25 * colours[number], colours[number]
                )
            lines.append(line)
        for y in range(top, top + layout.bar_height):
            image[y] = lines[y % stripe_period]
    return np.asarray(np.rint(image.clip(0, 1) * 255), dtype=np.uint8)


def draw(timeline: Timeline, num_columns: int = NUM_COLUMNS) -> Figure:
    """Return the picture as a matplotlib figure with an Agg canvas."""
    layout = row_layout(timeline)
    shares = picture_shares(timeline, num_columns)
    width, height = LEFT + NUM_COLUMNS + RIGHT, _TOP + layout.height + _BOTTOM
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((LEFT / width, _BOTTOM / height, NUM_COLUMNS / width, layout.height / height))
    unit, unit_ns = time_unit(timeline.makespan_ns)
    span = max(timeline.makespan_ns, 1) / unit_ns
    axes.imshow(
        paint(shares, layout, NUM_COLUMNS), aspect="auto", interpolation="nearest", extent=(0, span, layout.height, 0)
    )
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.tick_params(axis="x", labelsize=SMALL, color=GREY)
    axes.set_xlabel(f"time ({unit})", fontsize=TEXT, labelpad=2)
    axes.set_yticks([])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    label_rows(axes, timeline, layout)
    label_bars(axes, timeline, layout, span)
    has_arrows = draw_messages(axes, timeline, layout, span)
    title = f"{timeline.num_ranks} rank{'s' * (timeline.num_ranks != 1)}, {format_time(timeline.makespan_ns)}"
    figure.text(12 / width, 1 - 12 / height, title, fontsize=11, weight="bold", va="top")
    subtitle = summary(timeline).splitlines()[0].split(", ", 2)[2:]
    figure.text(12 / width, 1 - 32 / height, "".join(subtitle), fontsize=SMALL, color=GREY, va="top")
    _legend(figure, shares, width, height, has_arrows=has_arrows)
    return figure


def _pixels(timeline: Timeline, num_columns: int) -> npt.NDArray[np.uint8]:
    canvas: Any = draw(timeline, num_columns).canvas
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _legend(figure: Figure, shares: npt.NDArray[np.float64], width: int, height: int, *, has_arrows: bool) -> None:
    patches: list[Any] = [
        Patch(
            facecolor="#DDDDDD" if category.hatched else category.colour,
            edgecolor=category.colour if category.hatched else "#333333",
            hatch="////" if category.hatched else None,
            linewidth=0.6,
            label=category.name,
        )
        for number, category in enumerate(CATEGORIES)
        if shares[:, number].any()
    ]
    if has_arrows:
        style: dict[str, Any] = {"marker": 5, "markevery": [1], "markersize": 4, "linewidth": 0.8}
        patches.append(Line2D([0, 1], [0, 0], color=MESSAGE_COLOUR, label="message", **style))
    if patches:
        figure.legend(
            handles=[*patches, Patch(facecolor="white", edgecolor="#999999", linewidth=0.6, label="idle: empty")],
            loc="upper right",
            bbox_to_anchor=(1 - RIGHT / width, 1 - 6 / height),
            ncols=len(patches) + 1,
            fontsize=SMALL,
            frameon=False,
            handlelength=1.4,
            columnspacing=1.2,
            borderaxespad=0,
        )


def _rgb(colour: str) -> tuple[float, float, float]:
    return int(colour[1:3], 16) / 255, int(colour[3:5], 16) / 255, int(colour[5:7], 16) / 255
