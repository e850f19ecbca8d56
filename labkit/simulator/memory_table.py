"""The tables "memory" and "memory_peak" of a timeline, made of what each rank's ledger wrote down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from labkit.timeline.columns import Table
from labkit.timeline.memory import CATEGORIES

if TYPE_CHECKING:
    from labkit.simulator.memory import RankMemory


def memory_tables(ledgers: Sequence[RankMemory]) -> dict[str, Table]:
    """Return both tables, rows in the order of ranks and then of what happened.

    A tensor counts under the category it had in the end, for as long as it lived. What was taken one after the other at
    one time is one change, and so is what was given back; between the two no order is lost, so peaks are exact.

    Args:
        ledgers: One per rank, in order.
    """
    parts = [_changes(ledger) for ledger in ledgers]
    ranks = [np.full(len(part[0]), ledger.rank, dtype=np.int32) for ledger, part in zip(ledgers, parts, strict=True)]
    times, categories, held = ([part[column] for part in parts] for column in range(3))
    tables: dict[str, Table] = {
        "memory": {
            "rank": np.concatenate(ranks),
            "time_ns": np.concatenate(times),
            "category": np.concatenate(categories),
            "bytes": np.concatenate(held),
        },
        "memory_peak": {
            "rank": np.array([ledger.rank for ledger in ledgers], dtype=np.int32),
            "time_ns": np.array([ledger.peak_ns for ledger in ledgers], dtype=np.int64),
            "bytes": np.array([ledger.peak for ledger in ledgers], dtype=np.int64),
            "operator": np.array([ledger.peak_operator for ledger in ledgers], dtype=np.str_),
            "capacity": np.array([ledger.capacity for ledger in ledgers], dtype=np.int64),
        },
    }
    allocators = [ledger.allocator for ledger in ledgers if ledger.allocator is not None]
    if allocators:
        tables["memory_peak"]["reserved"] = np.array([one.reserved.peak for one in allocators], dtype=np.int64)
    return tables


def _changes(ledger: RankMemory) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int8], npt.NDArray[np.int64]]:
    """Return time, category and the bytes held from then on, for every change."""
    events = np.array(ledger.events, dtype=np.int64)
    times = np.array(ledger.times, dtype=np.int64)
    sizes = np.array(ledger.sizes, dtype=np.int64)
    categories = np.array(ledger.categories, dtype=np.int8)
    if not len(events):
        return times, np.zeros(0, dtype=np.int8), times
    takes = events >= 0
    blocks = np.where(takes, events, ~events)
    change = np.where(takes, sizes[blocks], -sizes[blocks])
    category = categories[blocks]
    category[category >= len(CATEGORIES)] = 0
    # Changes at one time in one direction form a group; within it one row for each category.
    new_group = np.ones(len(events), dtype=bool)
    new_group[1:] = (times[1:] != times[:-1]) | (takes[1:] != takes[:-1])
    key = (np.cumsum(new_group) - 1) * len(CATEGORIES) + category
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    total = np.add.reduceat(change[order], first)
    where = order[first]
    held = np.zeros(len(first), dtype=np.int64)
    of = category[where]
    for number in range(len(CATEGORIES)):
        mine = of == number
        held[mine] = np.cumsum(total[mine])
    return times[where], of, held
