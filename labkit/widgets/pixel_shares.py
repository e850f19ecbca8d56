"""How much of each pixel column each category fills: the numbers a timeline picture is painted from.

The usual shortcut, painting a pixel in the colour of whatever touches it, shows partly idle pixels as busy. Here a
column holds exact shares of its time and what is left over stays empty.
"""

from __future__ import annotations

import heapq
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from labkit.timeline.intervals import covered_before


def owned_segments(
    start: npt.NDArray[Any], end: npt.NDArray[Any], category: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return disjoint segments (start, end, category), sorted, that cover what the spans cover.

    Where spans overlap, the one that began last owns the time, as an inner region lies on top of an outer one; of spans
    that began together the shorter one, then the later row.
    """
    if bool((end[:-1] <= start[1:]).all()) and bool((end >= start).all()):
        return (
            start.astype(np.int64, copy=False),
            end.astype(np.int64, copy=False),
            category.astype(np.int64, copy=False),
        )
    by_start = np.lexsort((np.arange(len(start)), -end, start))
    if bool((end[by_start[:-1]] <= start[by_start[1:]]).all()):
        return start[by_start].astype(np.int64), end[by_start].astype(np.int64), category[by_start].astype(np.int64)
    order = by_start.tolist()
    starts, ends = start.tolist(), end.tolist()
    times = np.unique(np.concatenate((start, end))).tolist()
    on_top: list[tuple[int, int]] = []
    segments: list[tuple[int, int, int]] = []
    place = 0
    for begin, finish in pairwise(times):
        while place < len(order) and starts[order[place]] <= begin:
            heapq.heappush(on_top, (-place, order[place]))
            place += 1
        while on_top and ends[on_top[0][1]] <= begin:
            heapq.heappop(on_top)
        if not on_top:
            continue
        owner = int(category[on_top[0][1]])
        if segments and segments[-1][1] == begin and segments[-1][2] == owner:
            segments[-1] = (segments[-1][0], finish, owner)
        else:
            segments.append((begin, finish, owner))
    table = np.array(segments, dtype=np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def share_matrix(
    start: npt.NDArray[Any],
    end: npt.NDArray[Any],
    category: npt.NDArray[Any],
    num_categories: int,
    window: tuple[int, int],
    num_columns: int,
) -> npt.NDArray[np.float64]:
    """Return the share of each column's time that each category fills, shape (num_categories, num_columns).

    The categories of a column add up to the share of its time that any span covers, never to more than 1.

    Args:
        start: Begins of the spans of one row of the picture, ns.
        end: Their ends.
        category: Number of each span's category, 0 <= category < num_categories.
        num_categories: Rows of the result.
        window: Begin and end of the picture, ns; begin < end.
        num_columns: Columns of equal width.
    """
    # Counted from the window's begin: far from zero a float64 holds no fractions of a nanosecond.
    edges = np.linspace(0, window[1] - window[0], num_columns + 1)
    width = (window[1] - window[0]) / num_columns
    begin, finish, owner = owned_segments(start - window[0], end - window[0], category)
    shares = np.zeros((num_categories, num_columns))
    present = np.flatnonzero(np.bincount(owner)).tolist()
    for number in present:
        mine = owner == number if len(present) > 1 else slice(None)
        shares[number] = np.diff(covered_before((begin[mine], finish[mine]), edges)) / width
    return np.clip(shares, 0.0, 1.0)
