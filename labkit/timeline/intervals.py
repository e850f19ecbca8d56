"""Unions of time intervals, vectorised. Intervals are pairs of arrays (start, end), ends exclusive."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Intervals = tuple["npt.NDArray[np.int64]", "npt.NDArray[np.int64]"]


def union(start: npt.NDArray[Any], end: npt.NDArray[Any]) -> Intervals:
    """Return disjoint intervals, sorted, that cover exactly what the given ones cover; some may touch."""
    if not len(start):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    start, end = start.astype(np.int64, copy=False), end.astype(np.int64, copy=False)
    if (start[1:] >= end[:-1]).all():
        return start, end
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return start[first], reach[last]


def total(intervals: Intervals) -> int:
    """Return the summed length of disjoint intervals."""
    return int((intervals[1] - intervals[0]).sum())


def covered_before(intervals: Intervals, time: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return how much of the disjoint, sorted intervals lies before each time."""
    start, end = intervals
    if not len(start):
        return np.zeros(np.shape(time))
    at = np.asarray(time)
    if at.dtype.kind == "i":  # counted from the first begin: ns since 1970 are more than a float64 holds
        start, end, at = start - start[0], end - start[0], at - start[0]
    length = np.cumsum(end - start)
    corners = np.empty(2 * len(start))
    corners[0::2], corners[1::2] = start, end
    covered = np.empty(2 * len(start))
    covered[0::2], covered[1::2] = length - (end - start), length
    return np.interp(at.astype(np.float64), corners, covered)
