"""A timeline as a PNG: one row per rank and lane, exact shares in every pixel, idle time left empty.

It has no ground of its own, and colours that are read on a light and on a dark page.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from labkit.timeline.columns import COLUMNS
from labkit.timeline.grouping import NO_ROWS, by_rank_and_lane
from labkit.timeline.metrics import blocked_of_ranks
from labkit.timeline.phases import FORWARD, PHASES, phase_codes
from labkit.timeline.span import Lane
from labkit.timeline.summary import headline, summary
from labkit.timeline.timeline import Timeline
from labkit.timeline.transfers import moving
from labkit.widgets.annotations import (
    draw_end,
    draw_exposed,
    draw_messages,
    draw_regions,
    draw_seams,
    frame_event,
    label_bars,
    label_rows,
    lanes_in_words,
)
from labkit.widgets.axis_and_legend import SMALL, draw_axis, draw_legend
from labkit.widgets.canvas import SHARP, Canvas, fitting
from labkit.widgets.colours import ARROW, GREY, RED, rgb
from labkit.widgets.finding import finding
from labkit.widgets.language import CLAIM
from labkit.widgets.layout import (
    BOTTOM,
    LEFT,
    MOST_RANKS,
    NUM_COLUMNS,
    RIGHT,
    TOP,
    picture_rows,
    row_layout,
    time_unit,
    window_of,
)
from labkit.widgets.memory_rows import draw_memory
from labkit.widgets.palette import BLOCKED, CATEGORIES, DOTS, HATCH, IN_LEGEND, PALE, Category, categories_of
from labkit.widgets.pixel_shares import share_matrix, snap_edges
from labkit.widgets.tracks import Band, Bars, bands_of

MAX_BYTES = 60_000
WIDTH = LEFT + NUM_COLUMNS + RIGHT
"""Pixels of the picture on a page."""
_MOST_SHARP = 2000
"""Spans of which a sharp picture is tried: that of more has more than MAX_BYTES."""
_MOSTLY = 0.9
"""Of the time: what is so for that is called by it, as in js/timeline/frame.js."""
_PALETTE_HELPS = 6  # a palette makes a picture this many times smaller at best


def to_png(
    timeline: Timeline, title: str = "", event: int = -1, note: str = "", lasting_ns: int | None = None
) -> bytes:
    """Return the picture, sharp on screens with two pixels for one, at most 60 KB whatever the timeline's size.

    Where the exact picture is larger, shades are rounded to sixteenths, then it has one pixel for one, then columns are
    widened; the shares of these are exact again.

    Args:
        timeline: What was recorded.
        title: Stands above it; without one its size does.
        event: A row of the timeline to put a frame around, -1 for none.
        note: Stands under the title in place of the numbers.
        lasting_ns: What the axis spans, at least the makespan; shares of time are of the makespan all the same.
    """
    columns, scale = NUM_COLUMNS, SHARP if len(timeline) <= _MOST_SHARP else 1
    while True:
        image = draw(timeline, columns, title, event, note, lasting_ns, scale)
        png = encoded(image)
        if MAX_BYTES < len(png) < _PALETTE_HELPS * MAX_BYTES:
            png = of_few_colours(image)
        if len(png) <= MAX_BYTES:
            return png
        if scale == 1:
            columns //= 2 if len(png) < _PALETTE_HELPS * MAX_BYTES else 4
        scale = 1


def picture_shares(
    timeline: Timeline, num_columns: int = NUM_COLUMNS, rows: Sequence[tuple[int, Lane]] | None = None
) -> npt.NDArray[np.float64]:
    """Return what the picture is painted from, shape (rows, categories, num_columns); see :func:`share_matrix`."""
    rows = picture_rows(timeline) if rows is None else rows
    shares = np.zeros((len(rows), len(CATEGORIES), num_columns))
    first, span = window_of(timeline)
    for row, bars in enumerate(picture_bars(timeline, rows)):
        if len(bars[0]):
            shares[row] = share_matrix(*bars, len(CATEGORIES), (first, first + span), num_columns)
    return shares


def picture_bars(timeline: Timeline, rows: Sequence[tuple[int, Lane]]) -> Iterator[Bars]:
    """Yield what each row shows: begins, ends and categories. A row of names shows none, and a wait has none."""
    category, groups = categories_of(timeline), by_rank_and_lane(timeline)
    calls = _Calls(timeline, category)
    for rank, lane in rows:
        mine = groups.get((rank, lane), NO_ROWS) if lane != Lane.REGION else NO_ROWS
        mine = mine[timeline.kind[mine] != "wait"] if lane == Lane.HOST else mine
        here = timeline.start_ns[mine], timeline.end_ns[mine], category[mine]
        yield calls.of(rank) if lane == Lane.COMMUNICATION else here


class _Calls:
    """What the communication row of each rank shows: bytes moving, and time in which the rank stood still."""

    def __init__(self, timeline: Timeline, category: npt.NDArray[np.int64]) -> None:
        calls = moving(timeline)
        rank = timeline.rank[calls.row]
        order = np.argsort(rank, kind="stable") if (rank[1:] < rank[:-1]).any() else slice(None)
        self._edges = np.searchsorted(rank[order], np.arange(timeline.num_ranks + 1)).tolist()
        self._moves = calls.start_ns[order], calls.end_ns[order], category[calls.row[order]]
        self._blocked = blocked_of_ranks(timeline)

    def of(self, rank: int) -> Bars:
        """Return begins, ends and categories."""
        (start, end), mine = self._blocked[rank], slice(self._edges[rank], self._edges[rank + 1])
        begins, ends, categories = (column[mine] for column in self._moves)
        if not len(start):
            return begins, ends, categories
        still = np.full(len(start), BLOCKED, dtype=np.int64)
        parts = np.concatenate((begins, start)), np.concatenate((ends, end)), np.concatenate((categories, still))
        order = np.argsort(parts[0], kind="stable")
        return parts[0][order], parts[1][order], parts[2][order]


def paint(bands: Iterable[Band], height: int, width: int, scale: int) -> npt.NDArray[np.uint8]:
    """Return the rows as a still's pixels, four channels: colours multiplied by their shares, as opacity is."""
    colours = np.array([(*rgb(category.dark), 1.0) for category in CATEGORIES])
    hatched = np.array([category.hatched for category in CATEGORIES])
    dotted = np.array([category.dotted for category in CATEGORIES])
    plain_ones = ~(hatched | dotted)
    pale = PALE * colours
    x, each, dots = np.arange(scale * width), scale * HATCH[0], scale * DOTS[0]
    image = np.zeros((scale * height, scale * width, 4), dtype=np.uint8)
    for top, high, row in ((scale * top, scale * high, row) for top, high, row in bands):
        share = snap_edges(row)[:, x // scale * row.shape[1] // width].T
        plain = share[:, plain_ones] @ colours[plain_ones]
        solid, light = (_of_pattern(share, hatched, shade) for shade in (colours, pale))
        full, spots = (_of_pattern(share, dotted, shade) for shade in (colours, pale))
        if not share[:, ~plain_ones].any():
            image[top : top + high] = _bytes(plain)
            continue
        has_dots, lines = share[:, dotted].any(), {}
        for y in range(top, top + high):
            here = y % each, has_dots and y % dots < scale * DOTS[1]
            if here not in lines:
                striped = np.where(((x + y) % each < scale * HATCH[1])[:, None], solid, light)
                sprinkled = np.where(((x % dots < scale * DOTS[1]) & here[1])[:, None], spots, full)
                lines[here] = _bytes(plain + striped + sprinkled)
            image[y] = lines[here]
    return image


def _of_pattern(
    share: npt.NDArray[np.float64], which: npt.NDArray[np.bool_], shade: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return what the categories of one pattern add to each column in this shade."""
    return np.asarray(share[:, which] @ shade[which])


def _bytes(colours: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    return np.asarray(np.rint(colours.clip(0, 1) * 255), dtype=np.uint8)


def draw(
    timeline: Timeline,
    num_columns: int = NUM_COLUMNS,
    title: str = "",
    event: int = -1,
    note: str = "",
    lasting_ns: int | None = None,
    scale: int = SHARP,
) -> Image.Image:
    """Return the picture; see :func:`to_png`."""
    title = title or title_of(timeline)
    if not len(timeline):
        canvas = Canvas(WIDTH, TOP, scale)
        canvas.words(12, 12, title, 15, bold=True, down="top")
        return canvas.finished()
    says = note or numbers_under(title, summary(timeline).splitlines()[0])
    makespan = timeline.makespan_ns
    layout = row_layout(timeline, int(timeline.rank[event]) if event >= 0 else -1, is_beside=lasting_ns is not None)
    timeline = timeline if lasting_ns is None else _lasting(timeline, lasting_ns)
    shares = picture_shares(timeline, num_columns, layout.rows)
    canvas = Canvas(WIDTH, TOP + layout.height + BOTTOM, scale)
    bars = picture_bars(timeline, layout.rows) if lasting_ns is not None else ()
    bands = bands_of(layout, shares, bars, window_of(timeline))
    canvas.pixels(LEFT, TOP, paint(bands, layout.height, NUM_COLUMNS, scale))
    _, span = window_of(timeline)
    unit, unit_ns = time_unit(span)
    draw_axis(canvas, span / unit_ns, f"time ({unit}){lanes_in_words(timeline, layout)}")
    draw_memory(canvas, timeline, layout)
    busy = np.delete(shares, BLOCKED, axis=1)
    label_rows(canvas, timeline, layout, busy.sum((1, 2)) / num_columns, makespan)
    draw_seams(canvas, timeline, layout)
    is_exposed = draw_exposed(canvas, shares, layout)
    draw_regions(canvas, timeline, layout)
    label_bars(canvas, timeline, layout)
    has_arrows = draw_messages(canvas, timeline, layout)
    if lasting_ns is not None:
        draw_end(canvas, makespan, lasting_ns, layout)
    canvas.words(12, 10, title, CLAIM, bold=True, down="top")
    if lasting_ns is None or note:  # of two runs each has its length at its end
        canvas.words(12, 34, fitting(says, SMALL, canvas.width - 24), SMALL, colour=RED if note else GREY, down="top")
    if event >= 0:
        frame_event(canvas, timeline, layout, event)
    present = [category_in_words(timeline, number) for number in IN_LEGEND if shares[:, number].any()]
    is_idle = bool((shares.sum(1) < 1 - 1 / layout.bar_height).any())
    draw_legend(canvas, present, has_arrows=has_arrows, is_exposed=is_exposed, is_idle=is_idle)
    return canvas.finished()


def category_in_words(timeline: Timeline, number: int) -> Category:
    """Return a category as the legend names it: computing beside a backward pass is forward, as on the page."""
    category = CATEGORIES[number]
    if number or not (categories_of(timeline) == 1).any():
        return category
    codes, time = phase_codes(timeline), timeline.end_ns - timeline.start_ns
    mine = (timeline.lane == Lane.COMPUTE) & (categories_of(timeline) == number)
    is_forward = mine & (codes == PHASES.index(FORWARD))
    is_all = bool(time[is_forward].sum() >= _MOSTLY * time[mine].sum())
    return replace(category, name="forward" if is_all else "forward, other compute")


def numbers_under(title: str, sentence: str) -> str:
    """Return what of a timeline's sentence its title does not say."""
    parts = sentence.split(", ")
    while parts and (parts[0] in title or parts[0].split(" (")[0] in title):
        parts.pop(0)
    return ", ".join(parts)


def title_of(timeline: Timeline) -> str:
    """Return what it shows first of all, else how large it is: "8 ranks, 1.92 ms, blocked 12 % of the time"."""
    shown = f" ({MOST_RANKS} of the ranks shown)" if timeline.num_ranks > MOST_RANKS else ""
    return (finding(timeline) or headline(timeline)) + shown


def _lasting(timeline: Timeline, span_ns: int) -> Timeline:
    """Return the timeline with one more span of no length, which paints nothing, so that it lasts this long."""
    end = timeline.extent_ns[0] + span_ns
    lane = timeline.lane[int((timeline.lane != Lane.REGION).argmax())]  # a region would have a bracket
    last: dict[str, Any] = {"rank": timeline.rank[0], "lane": lane, "start_ns": end, "end_ns": end}
    last |= {"name": "", "kind": "span", "bytes": 0, "peer": -1, "flow": -1}
    columns = {key: np.append(getattr(timeline, key), last[key]) for key in COLUMNS}
    return Timeline(**columns, tables=timeline.tables, problems=timeline.problems, num_ranks=timeline.num_ranks)


def of_few_colours(image: Image.Image) -> bytes:
    """Return a PNG of each colour in sixteen opacities, so that reducing a picture keeps its colours true."""
    colours, nearest = _few_colours()
    red, green, blue, opacity = (np.asarray(channel).astype(np.uint16) for channel in image.split())
    step = (opacity * 16 + 127) // 255
    near = nearest.ravel().take((red >> 3) << 10 | (green >> 3) << 5 | blue >> 3)
    entry = np.where(step, step * len(colours) + near + 1 - len(colours), 0)
    few = Image.fromarray(entry.astype(np.uint8), "P")
    few.putpalette(bytes(3) + 16 * _bytes(colours).tobytes())
    return encoded(few, transparency=bytes([0, *(255 * step // 16 for step in range(1, 17) for _ in colours)]))


@cache
def _few_colours() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint8]]:
    """Return the colours of pictures, and which is nearest by the upper five bits of red, green and blue."""
    names = dict.fromkeys([*(category.dark for category in CATEGORIES), ARROW, GREY, RED, "#000000", "#ffffff"])
    colours = np.array([rgb(name) for name in names])
    shades = (np.arange(32) + 0.5) / 32
    apart = [(shades[:, None] - colours[:, channel]) ** 2 for channel in range(3)]
    distance = apart[0][:, None, None] + apart[1][None, :, None] + apart[2][None, None]
    return colours, distance.argmin(-1).astype(np.uint8)


def encoded(image: Image.Image, **more: Any) -> bytes:
    """Return the picture as a PNG; more is what Pillow's writer knows."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=3, **more)  # makes less of these than 6 does, in two thirds of the time
    return buffer.getvalue()
