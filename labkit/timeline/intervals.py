"""Unions of time intervals, vectorised. Intervals are pairs of arrays (start, end), ends exclusive."""

from __future__ import annotations

import heapq
from itertools import pairwise
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
        if (start[1:] >= end[:-1]).all():
            return start, end
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
    at = at.astype(np.float64)
    covered = np.concatenate(([0], np.cumsum(end - start)))
    begun = np.searchsorted(start, at, side="right")
    to_come = np.maximum(end[np.maximum(begun - 1, 0)] - at, 0)  # of the last that has begun
    return np.asarray(np.where(begun > 0, covered[begun] - to_come, 0.0))


def without(intervals: Intervals, others: Intervals) -> Intervals:
    """Return what disjoint, sorted intervals cover and the others, disjoint and sorted too, do not."""
    start, end = intervals
    if not len(start) or not len(others[0]):
        return intervals
    edges = np.unique(np.concatenate((start, end, *others)))
    begin, finish = edges[:-1], edges[1:]
    keep = _holds(intervals, begin) & ~_holds(others, begin)
    begin, finish = begin[keep], finish[keep]
    first = np.concatenate((np.ones(min(len(begin), 1), bool), begin[1:] > finish[:-1]))
    # Pieces that touch are one again, but where one of the given ones begins.
    first |= np.isin(begin, start)
    last = np.concatenate((first[1:], np.ones(min(len(begin), 1), bool)))
    return begin[first], finish[last]


def _holds(intervals: Intervals, time: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which times lie in the disjoint, sorted intervals."""
    start, end = intervals
    place = np.searchsorted(start, time, side="right") - 1
    held: npt.NDArray[np.bool_] = (place >= 0) & (time < end[place])
    return held


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
