"""How much of each pixel column each category fills: the numbers a timeline picture is painted from.

The usual shortcut, painting a pixel in the colour of whatever touches it, shows partly idle pixels as busy. Here a
column holds exact shares of its time and what is left over stays empty.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from labkit.timeline.intervals import covered_before, owned_segments


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


_WHOLE = 0.999


def snap_edges(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the shares with the edges of bars on pixels: a column that parts two of them goes to the larger.

    Columns with more in them than their neighbours keep their shares, so what is narrower than a pixel is still seen by
    its exact share. labkit/widgets/js/timeline/snapping.js does the same.

    Args:
        shares: Of one row, shape (num_categories, num_columns).
    """
    parts = np.vstack((shares, 1 - shares.sum(0)))  # with what nobody has
    full = parts >= _WHOLE
    owner = np.where(full.any(0), full.argmax(0), -1)
    at = np.flatnonzero((owner[1:-1] < 0) & (owner[:-2] >= 0) & (owner[2:] >= 0) & (owner[:-2] != owner[2:])) + 1
    before, after = owner[at - 1], owner[at + 1]
    left, right = parts[before, at], parts[after, at]
    edges = left + right >= _WHOLE
    winner = np.where(left >= right, before, after)[edges]
    snapped = parts.copy()
    snapped[:, at[edges]] = 0
    snapped[winner, at[edges]] = 1
    return np.asarray(snapped[:-1])
