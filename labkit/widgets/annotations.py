"""What is written over the bars of a timeline picture: names, shares, and an arrow for each message."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from labkit.timeline.grouping import NO_ROWS, by_rank_and_lane
from labkit.timeline.messages import RECEIVES, REMOTE_CALLS, SENDS, SERVED
from labkit.timeline.metrics import busy_ns
from labkit.timeline.span import Lane
from labkit.timeline.streams import streams
from labkit.timeline.timeline import Timeline
from labkit.units import format_time
from labkit.widgets.axis_and_legend import SMALL, TEXT
from labkit.widgets.canvas import CLEAR, Canvas, width_of
from labkit.widgets.colours import ARROW, GREY, INK, RED, ink_on
from labkit.widgets.language import CLAIM
from labkit.widgets.layout import LEFT, NUM_COLUMNS, TOP, RowLayout, window_of
from labkit.widgets.palette import BLOCKED, CATEGORIES, categories_of

_IN_BARS = 11
_LEAST_FRAME = 6
_EDGE = 3
_SEAM = 6
_MOST_NAMED = 20_000
_MOST_ARROWS = 64
_LINE_OF_TEXT = 8
_NAME = 46  # pixels of a rank's name, beside those of its lanes
_LANES = {Lane.COMPUTE: "compute", Lane.COMMUNICATION: "comm", Lane.HOST: "host", Lane.REGION: "spans"}


def label_rows(
    canvas: Canvas, timeline: Timeline, layout: RowLayout, filled: npt.NDArray[np.float64], length_ns: int
) -> None:
    """Name ranks and lanes on the left and give the share of time each is busy on the right.

    Where bars are too low for a line of text each, a rank's lanes share one number.

    Args:
        canvas: Where the rows are painted.
        timeline: What was recorded.
        layout: Where the rows lie.
        filled: What share of the axis each row fills.
        length_ns: The time of which shares are given, the axis or less.
    """
    busy = filled * window_of(timeline)[1] / max(length_ns, 1)
    rows, each_busy = layout.rows, None
    at_right = LEFT + NUM_COLUMNS + 46
    each_lane = layout.bar_height >= _LINE_OF_TEXT
    last = -100.0
    for (rank, lane), top, share in zip(rows, layout.tops, busy.tolist(), strict=True):
        if each_lane and lane == Lane.REGION:
            canvas.words(LEFT - 6, TOP + top + layout.bar_height / 2, _LANES[lane], SMALL, colour=GREY, across="right")
        elif each_lane:
            middle = TOP + top + layout.bar_height / 2
            canvas.words(LEFT - 6, middle, _LANES[lane], SMALL, colour=GREY, across="right")
            canvas.words(at_right, middle, f"{100 * share:.0f} %", SMALL, colour=GREY, across="right")
        middle = TOP + top + layout.rank_height / 2
        if lane != rows[0][1] or middle - last < 12:
            continue
        last = middle
        if top > 0 and each_lane:
            between = TOP + top - layout.rank_gap / 2
            canvas.line(0, between, LEFT + NUM_COLUMNS, between, GREY, 0.25)
        name = layout.names.get(rank, f"rank {rank}")
        x, size = (12, TEXT) if width_of(name, TEXT) < _NAME else (4, SMALL)
        canvas.words(x, middle, name, size)
        if not each_lane:
            each_busy = busy_ns(timeline).tolist() if each_busy is None else each_busy
            share = each_busy[rank] / max(length_ns, 1)
            canvas.words(at_right, middle, f"{100 * share:.0f} %", SMALL, colour=GREY, across="right")
    if rows:
        canvas.words(at_right, TOP - 4, "busy", SMALL, colour=GREY, across="right", down="bottom")


def lanes_in_words(timeline: Timeline, layout: RowLayout) -> str:
    """Return what a rank's unlabelled rows are, where there are several, and how many streams its rows hold, if any."""
    lanes = list(dict.fromkeys(_LANES[lane] for _, lane in layout.rows))
    told = "" if layout.bar_height >= _LINE_OF_TEXT or len(lanes) < 2 else f", rows of a rank: {', '.join(lanes)}"
    return told + _folded_streams(timeline)


def _folded_streams(timeline: Timeline) -> str:
    """Return how many streams a rank has, where rows of its lanes hold more than one; else ""."""
    names, number = streams(timeline)
    if not names:
        return ""
    ran = np.flatnonzero(number >= 0)
    rank = timeline.rank[ran].astype(np.int64)
    most = int(np.bincount(np.unique(rank * len(names) + number[ran]) // len(names)).max())
    row = rank * len(Lane) + timeline.lane[ran]
    in_a_row = int(np.bincount(np.unique(row * len(names) + number[ran]) // len(names)).max())
    return f", {most} streams folded" if in_a_row > 1 else ""


def bars_of(timeline: Timeline) -> dict[int, tuple[int, int]]:
    """Return the first stretch in which each call moved bytes, where that is not all of it; of some there is none."""
    table = timeline.transfers
    found: dict[int, tuple[int, int]] = {}
    for row, begin, end in zip(*(table[key].tolist() for key in ("span", "start_ns", "end_ns")), strict=True):
        found.setdefault(row, (begin, end))
    return found


def draw_regions(canvas: Canvas, timeline: Timeline, layout: RowLayout) -> None:
    """Draw named regions as brackets above their rank, those inside others lower, and names where there is room."""
    if Lane.REGION not in {lane for _, lane in layout.rows} or len(timeline) > _MOST_NAMED:
        return
    first, span = window_of(timeline)
    scale, groups = NUM_COLUMNS / span, by_rank_and_lane(timeline)
    for (rank, lane), top in zip(layout.rows, layout.tops, strict=True):
        if lane != Lane.REGION:
            continue
        rows = groups.get((rank, lane), NO_ROWS)
        for row, depth, end_of_name in nested(timeline, rows):
            begin, end = (LEFT + (int(time) - first) * scale for time in (timeline.start_ns[row], timeline.end_ns[row]))
            y = TOP + top + min(2 * depth, layout.bar_height // 2)
            canvas.line(begin, y, max(end - 1, begin), y, GREY)
            for x in (begin, max(end - 1, begin)):
                canvas.line(x, y, x, TOP + top + layout.bar_height - 1, GREY)
            name, room = str(timeline.name[row]), LEFT + (end_of_name - first) * scale - begin
            if layout.bar_height >= 12 and width_of(name, SMALL) + 6 <= room:
                canvas.words(begin + 4, TOP + top + layout.bar_height - 5, name, SMALL, colour=GREY)


def nested(timeline: Timeline, rows: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Return each region's row, how many others it lies in, and until when its name has room."""
    order = rows[np.lexsort((-timeline.end_ns[rows], timeline.start_ns[rows]))].tolist()
    open_ends: list[int] = []
    found = []
    for place, row in enumerate(order):
        begin, end = int(timeline.start_ns[row]), int(timeline.end_ns[row])
        open_ends = [each for each in open_ends if each > begin]
        following = int(timeline.start_ns[order[place + 1]]) if place + 1 < len(order) else end
        found.append((row, len(open_ends), min(end, following)))
        open_ends.append(end)
    return found


def label_bars(canvas: Canvas, timeline: Timeline, layout: RowLayout) -> None:
    """Write names into the bars that are wide enough and not covered by others."""
    if layout.bar_height < 12 or len(timeline) > 2000:
        return
    first, span = window_of(timeline)
    groups, categories = by_rank_and_lane(timeline), categories_of(timeline)
    pixel_ns = span / NUM_COLUMNS
    moves = bars_of(timeline)
    for (rank, lane), top in zip(layout.rows, layout.tops, strict=True):
        rows = groups.get((rank, lane), NO_ROWS) if lane != Lane.REGION else NO_ROWS
        for row in rows.tolist():
            start, end = moves.get(row, (int(timeline.start_ns[row]), int(timeline.end_ns[row])))
            way = "←" if timeline.kind[row] in (*RECEIVES, SERVED) else "→"
            text = str(timeline.name[row]) + (f" {way} {timeline.peer[row]}" if timeline.peer[row] >= 0 else "")
            others = rows[rows != row]
            meets = [moves.get(o, (timeline.start_ns[o], timeline.end_ns[o])) for o in others.tolist()]
            covered = any(begin < end and finish > start for begin, finish in meets)
            if (end - start) / pixel_ns < width_of(text, _IN_BARS) + 6 or covered or timeline.kind[row] == "wait":
                continue
            x, y = LEFT + ((start + end) / 2 - first) / pixel_ns, TOP + top + layout.bar_height / 2
            canvas.words(x, y, text, _IN_BARS, colour=ink_on(CATEGORIES[categories[row]].dark), across="middle")


def draw_seams(canvas: Canvas, timeline: Timeline, layout: RowLayout) -> None:
    """Part bars that follow each other at once by a line of ground, where both are wide enough to be told apart."""
    if layout.bar_height < _LINE_OF_TEXT or len(timeline) > _MOST_NAMED:
        return
    first, span = window_of(timeline)
    scale, groups, moves = NUM_COLUMNS / span, by_rank_and_lane(timeline), bars_of(timeline)
    for (rank, lane), top in zip(layout.rows, layout.tops, strict=True):
        rows = groups.get((rank, lane), NO_ROWS) if lane != Lane.REGION else NO_ROWS
        own = [row for row in rows.tolist() if timeline.kind[row] != "wait"]
        bars = sorted(moves.get(row, (int(timeline.start_ns[row]), int(timeline.end_ns[row]))) for row in own)
        for (begin, end), (then, until) in pairwise(bars):
            if abs(then - end) * scale < 0.5 and min(end - begin, until - then) * scale >= _SEAM:
                x = LEFT + (then - first) * scale
                canvas.line(x, TOP + top, x, TOP + top + layout.bar_height - 1, CLEAR)


def draw_exposed(canvas: Canvas, shares: npt.NDArray[np.float64], layout: RowLayout) -> bool:
    """Draw a red edge, set off from the bar, under communication that nothing hides, where some of a run's is hidden.

    Args:
        canvas: Where the rows are painted.
        shares: What they are painted from, shape (rows, categories, columns).
        layout: Where the rows lie.

    Returns:
        Whether any is drawn.
    """
    drawn = False
    rows = {place: number for number, place in enumerate(layout.rows)}
    pairs = [
        (number, rows.get((rank, Lane.COMPUTE))) for (rank, lane), number in rows.items() if lane == Lane.COMMUNICATION
    ]
    pixel = np.arange(NUM_COLUMNS) * shares.shape[2] // NUM_COLUMNS
    moves = {call: (np.delete(shares[call], BLOCKED, axis=0).sum(0) > 0.5)[pixel] for call, _ in pairs}
    covered = {call: (shares[at].sum(0) > 0.5)[pixel] for call, at in pairs if at is not None}
    if not any((moves[call] & hides).any() for call, hides in covered.items()):
        return False
    for call, hides in covered.items():
        bare = np.concatenate(([False], moves[call] & ~hides, [False])).astype(np.int8)
        begins, ends = np.flatnonzero(np.diff(bare) == 1), np.flatnonzero(np.diff(bare) == -1)
        low = TOP + layout.tops[call] + layout.bar_height - _EDGE
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            canvas.box(LEFT + begin, low, end - begin, _EDGE, edge=RED, fill=RED)
            if layout.bar_height >= _LINE_OF_TEXT:
                canvas.box(LEFT + begin, low - 1, end - begin, 1, edge=CLEAR, fill=CLEAR)
            drawn = True
    return drawn


def draw_end(canvas: Canvas, length_ns: int, span_ns: int, layout: RowLayout) -> None:
    """Draw a line where a run ends on an axis that is longer, or as long, with the run's length beside it."""
    x = LEFT + NUM_COLUMNS * length_ns / max(span_ns, 1)
    canvas.line(x, TOP - 10, x, TOP + layout.height, INK)
    words = format_time(length_ns)
    right = x + 6 + width_of(words, CLAIM) < LEFT + NUM_COLUMNS
    canvas.words(
        x + (6 if right else -6), TOP - 3, words, CLAIM, bold=True, across="left" if right else "right", down="bottom"
    )


def draw_messages(canvas: Canvas, timeline: Timeline, layout: RowLayout) -> bool:
    """Draw an arrow from where a message leaves to where it has come, and from each remote call to its callee.

    Returns:
        False where they are too many, or none is between ranks that have rows.
    """
    messages = np.unique(timeline.flow[timeline.flow >= 0])
    if not 0 < len(messages) <= _MOST_ARROWS or layout.bar_height < 8:
        return False
    top_of = dict(zip(layout.rows, layout.tops, strict=True))
    first, span = window_of(timeline)
    scale, moves = NUM_COLUMNS / span, bars_of(timeline)
    arrows = []
    for flow in messages.tolist():
        ends = np.flatnonzero(timeline.flow == flow).tolist()
        sends = [row for row in ends if timeline.kind[row] in (*SENDS, *REMOTE_CALLS)]
        receives = [row for row in ends if timeline.kind[row] in (*RECEIVES, SERVED)]
        if not sends or not receives:
            continue
        remote = timeline.kind[receives[0]] == SERVED  # its reply has no arrow: the call's span ends there
        leaves_ns = moves.get(sends[0], (int(timeline.start_ns[sends[0]]), 0))[0]
        arrives = int(timeline.start_ns[receives[0]]) if remote else int(timeline.end_ns[receives[0]])
        places = ((int(timeline.rank[row]), Lane(timeline.lane[row])) for row in (sends[0], receives[0]))
        src, dst = (top_of.get(place) for place in places)
        if src is None or dst is None:
            continue  # of a rank that another one stands for
        down = dst > src
        leaves = LEFT + (leaves_ns - first) * scale
        from_y, to_y = (src + layout.bar_height, dst) if down else (src, dst + layout.bar_height)
        arrows.append((leaves, TOP + from_y, LEFT + (arrives - first) * scale, TOP + to_y))
    canvas.arrows(arrows, ARROW, 1.0)
    return bool(arrows)


def frame_event(canvas: Canvas, timeline: Timeline, layout: RowLayout, row: int) -> None:
    """Draw a frame around an event's bar, wide enough to be seen; nothing where its rank has no row."""
    place = (int(timeline.rank[row]), Lane(timeline.lane[row]))
    rows = layout.rows
    if place not in rows:
        return
    first, span = window_of(timeline)
    scale = NUM_COLUMNS / span
    begin, end = (int(timeline.start_ns[row]) - first) * scale, (int(timeline.end_ns[row]) - first) * scale
    wide = max(end - begin, _LEAST_FRAME)
    left = LEFT + min(begin, NUM_COLUMNS - wide)
    canvas.ring(left, TOP + layout.tops[rows.index(place)], wide, layout.bar_height, RED)
