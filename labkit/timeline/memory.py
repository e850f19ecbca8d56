"""Memory over time, read off a timeline: how many bytes each rank held, of what, and when most.

The table "memory" (rank, time_ns, category, bytes) has a row for every change: from time_ns on, rank holds this many
bytes of the category. Rows stand in the order in which they happened, several may share a time. A row "memory_peak"
(rank, time_ns, bytes, operator, capacity) says when each rank held most and which operator took it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from labkit.errors import ConfigError
from labkit.timeline.columns import Table

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline

_CHANGES = 0.1
"""Of the most a rank held: less of a change is not worth a picture."""
CATEGORIES = ("other", "activations", "communication", "gradients", "optimizer state", "buffers", "parameters")
"""What the numbers of the column "category" stand for."""


@dataclass(frozen=True)
class Peak:
    """The moment at which a rank held most.

    Attributes:
        rank: Global rank.
        time_ns: When it was first.
        bytes: How much.
        operator: What made the tensor that led there, such as "mm".
        capacity: What the device holds, bytes.
        by_category: Bytes of each category at that moment, the largest first.
    """

    rank: int
    time_ns: int
    bytes: int
    operator: str
    capacity: int
    by_category: dict[str, int]


def has_memory(timeline: Timeline) -> bool:
    """Return whether the timeline says anything about memory."""
    return "memory" in timeline.tables


def changing_memory(timeline: Timeline) -> list[int]:
    """Return the ranks that held noticeably more at some time than at another, their first and last moments apart."""
    if not has_memory(timeline):
        return []
    first, last = timeline.extent_ns
    begin, end = first + (last - first) // 50, last - (last - first) // 50
    found = []
    for rank in range(timeline.num_ranks):
        times, held = memory_curve(timeline, rank)
        at_begin = held[: np.searchsorted(times, begin, side="right")][-1:]
        during = np.append(at_begin, held[(times > begin) & (times < end)])
        if len(during) and np.ptp(during) > _CHANGES * during.max():
            found.append(rank)
    return found


def peak_memory_bytes(timeline: Timeline, rank: int | None = None, category: str | None = None) -> int:
    """Return the most bytes held at any time.

    Args:
        timeline: What was recorded.
        rank: One rank, or None for the rank that held most.
        category: One of CATEGORIES, or None for all together. Peaks of categories may lie at different times.

    Raises:
        ConfigError: If the timeline has no memory, or no such rank or category.
    """
    ranks = range(timeline.num_ranks) if rank is None else [rank]
    return max((int(memory_curve(timeline, each, category)[1].max(initial=0)) for each in ranks), default=0)


def memory_curve(
    timeline: Timeline, rank: int, category: str | None = None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return times (ns) and the bytes a rank held from each on; several values may share a time.

    Args:
        timeline: What was recorded.
        rank: Which rank.
        category: One of CATEGORIES, or None for all together.

    Raises:
        ConfigError: If the timeline has no memory, or no such rank or category.
    """
    table = _rows_of(timeline, rank)
    if category is not None:
        if category not in CATEGORIES:
            raise ConfigError(f"No kind of memory is called {category!r}; use one of {', '.join(CATEGORIES)}.")
        keep = table["category"] == CATEGORIES.index(category)
        return table["time_ns"][keep], table["bytes"][keep]
    return table["time_ns"], _totals(table["category"], table["bytes"])


def held_over_time(timeline: Timeline, rank: int) -> Iterator[tuple[int, dict[str, int]]]:
    """Yield each time (ns) at which a rank's memory changed and its bytes by category, where they were most just then.

    Categories that the rank never uses are left out.

    Args:
        timeline: What was recorded.
        rank: Which rank.
    """
    table = _rows_of(timeline, rank)
    totals = _totals(table["category"], table["bytes"]).tolist()
    held = {CATEGORIES[number]: 0 for number in sorted(set(table["category"].tolist()), reverse=True)}
    rows = zip(table["time_ns"].tolist(), table["category"].tolist(), table["bytes"].tolist(), totals, strict=True)
    most, at_most, now_ns = -1, dict(held), None
    for time_ns, number, num_bytes, total in rows:
        if time_ns != now_ns:
            if now_ns is not None:
                yield now_ns, at_most
            now_ns, most = time_ns, -1
        held[CATEGORIES[number]] = num_bytes
        if total > most:
            most, at_most = total, dict(held)
    if now_ns is not None:
        yield now_ns, at_most


def memory_peaks(timeline: Timeline) -> list[Peak]:
    """Return for each rank when it held most, how much of what, and the operator that led there.

    Raises:
        ConfigError: If the timeline has no memory.
    """
    found = []
    for rank in range(timeline.num_ranks):
        rows = _rows_of(timeline, rank)
        peak = timeline.tables["memory_peak"]
        row = int(np.flatnonzero(peak["rank"] == rank)[0])
        held: dict[str, int] = {}
        if len(rows["bytes"]):
            last = int(_totals(rows["category"], rows["bytes"]).argmax()) + 1
            for number, name in enumerate(CATEGORIES):
                values = rows["bytes"][:last][rows["category"][:last] == number]
                if len(values) and values[-1]:
                    held[name] = int(values[-1])
        ordered = dict(sorted(held.items(), key=lambda item: -item[1]))
        time_ns, capacity = int(peak["time_ns"][row]), int(peak["capacity"][row])
        found.append(Peak(rank, time_ns, int(peak["bytes"][row]), str(peak["operator"][row]), capacity, ordered))
    return found


def _rows_of(timeline: Timeline, rank: int) -> Table:
    if not has_memory(timeline):
        raise ConfigError("This timeline has no memory: only runs on labkit.virtual() record it.")
    if not 0 <= rank < timeline.num_ranks:
        raise ConfigError(f"The timeline has no rank {rank}; its ranks are 0 to {timeline.num_ranks - 1}.")
    table = timeline.tables["memory"]
    start, end = np.searchsorted(table["rank"], [rank, rank + 1])
    return {name: column[start:end] for name, column in table.items()}


def _totals(category: npt.NDArray[np.int8], held: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the sum over categories after each row."""
    change = np.zeros(len(held), dtype=np.int64)
    for number in range(len(CATEGORIES)):
        mine = np.flatnonzero(category == number)
        change[mine] = np.diff(held[mine], prepend=0)
    return np.cumsum(change)
