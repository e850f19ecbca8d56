"""Rows of calls in which bytes go both ways at once, as two tracks: above it comes, below it goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from labkit.widgets.layout import RowLayout
from labkit.widgets.palette import RECEIVE, SEND
from labkit.widgets.pixel_shares import share_matrix

Bars = tuple["npt.NDArray[np.int64]", "npt.NDArray[np.int64]", "npt.NDArray[np.int64]"]
"""Begins, ends and categories of what a row shows, by begin."""
Band = tuple[int, int, "npt.NDArray[np.float64]"]
"""Where a row or one of its tracks lies, how high it is, both in pixels, and its shares, (categories, columns)."""


def tracks_of(bars: Bars) -> list[Bars]:
    """Return what the two tracks of a row show, if its rank sends while it receives; else the row alone.

    What is neither, as a barrier, is in both. js/timeline/segments.js does the same.
    """
    begin, end, category = bars
    is_way = np.isin(category, (SEND, RECEIVE))
    at_once = (begin[1:] < end[:-1]) & is_way[1:] & is_way[:-1] & (category[1:] != category[:-1])
    if not at_once.any():
        return [bars]
    return [(begin[mine], end[mine], category[mine]) for mine in (category != SEND, category != RECEIVE)]


def bands_of(
    layout: RowLayout, shares: npt.NDArray[np.float64], bars: Iterable[Bars], window: tuple[int, int]
) -> Iterator[Band]:
    """Yield what is painted of each row: all of it, or its two tracks.

    Args:
        layout: Where the rows lie.
        shares: Of each row, shape (rows, categories, columns).
        bars: What each row shows, where its tracks are wanted; else nothing.
        window: When the picture begins, and how long it lasts, ns.
    """
    first, span = window
    _, num_categories, num_columns = shares.shape
    for top, row, mine in zip_longest(layout.tops, shares, bars):
        tracks = tracks_of(mine) if mine else []
        if len(tracks) < 2:
            yield top, layout.bar_height, row
            continue
        high = layout.bar_height // 2
        for place, track in enumerate(tracks):
            yield top + place * high, high, share_matrix(*track, num_categories, (first, first + span), num_columns)
