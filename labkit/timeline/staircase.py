"""Whether ranks wait because they are the stages of a pipeline, and how long each of them stands idle then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from labkit.timeline.grouping import by_rank
from labkit.timeline.intervals import Intervals, total, union
from labkit.timeline.messages import RECEIVES, SENDS, of_kind
from labkit.timeline.metrics import stood_of_ranks, wait_ns

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline

_FEWEST = 3
"""Ranks of a chain: of two nobody can say whether they are stages, or one serves the other."""
_BEFORE = 0.1
"""Of its work: a stage but the first does less before it has received something."""
_SHARE = 0.25
"""Of what ranks work on average: each stage works as much, at least."""


def idle_ns(timeline: Timeline) -> npt.NDArray[np.int64]:
    """Return how long each rank was blocked or had ended before the run did, shape (num_ranks,)."""
    _, last = timeline.extent_ns
    ends = [int(timeline.end_ns[rows].max()) if len(rows) else last for rows in _recorded(timeline)]
    return np.asarray(wait_ns(timeline) + last - np.array(ends, dtype=np.int64))


def is_pipeline(timeline: Timeline) -> bool:
    """Return whether the ranks are stages: a chain, or several as long, down which work is passed on.

    Each rank but the first of its chain begins to work once it has received something from the one before it; every
    message goes to a neighbour in a chain, or from its end to its begin; and every rank works.
    """
    if timeline.num_ranks < _FEWEST:
        return False
    rows = np.flatnonzero((timeline.flow >= 0) & of_kind(timeline, *RECEIVES))
    first = _first_received(timeline, rows)
    before, work = _work(timeline, first)
    if work.min() < _SHARE * work.mean() or not work.min():
        return False
    begins = [rank for rank in range(timeline.num_ranks) if first[rank] < 0 or before[rank] >= _BEFORE * work[rank]]
    after = {int(timeline.peer[row]): rank for rank, row in enumerate(first) if rank not in begins}
    chains = [_chain(begin, after) for begin in begins]
    if sum(map(len, chains)) != timeline.num_ranks or len({len(chain) for chain in chains}) != 1 or len(chains[0]) < 2:
        return False
    return _all_between_neighbours(timeline, chains)


def _recorded(timeline: Timeline) -> list[npt.NDArray[np.int64]]:
    return by_rank(timeline, np.ones(len(timeline), dtype=np.bool_))


def _first_received(timeline: Timeline, rows: npt.NDArray[np.int64]) -> list[int]:
    """Return the row of each rank's first receive, -1 for a rank that receives nothing."""
    found = [-1] * timeline.num_ranks
    for row in rows[np.argsort(-timeline.start_ns[rows], kind="stable")].tolist():
        found[int(timeline.rank[row])] = row
    return found


def _work(timeline: Timeline, first: list[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return how long each rank was in no call and no wait: until its first receive ended, and in all."""
    begin, _ = timeline.extent_ns
    found = []
    for rank, (rows, stood) in enumerate(zip(_recorded(timeline), stood_of_ranks(timeline), strict=True)):
        ends = int(timeline.end_ns[rows].max()) if len(rows) else begin
        until = int(timeline.end_ns[first[rank]]) if first[rank] >= 0 else ends
        found.append([until - begin - total(_until(stood, until)), ends - begin - total(_until(stood, ends))])
    before, work = np.array(found, dtype=np.int64).T
    return before, work


def _until(stood: Intervals, end: int) -> Intervals:
    begins, ends = stood
    return union(np.minimum(begins, end), np.minimum(ends, end))


def _chain(begin: int, after: dict[int, int]) -> list[int]:
    """Return the ranks from the first of a chain to its last."""
    chain = [begin]
    while chain[-1] in after and after[chain[-1]] not in chain:
        chain.append(after[chain[-1]])
    return chain


def _all_between_neighbours(timeline: Timeline, chains: list[list[int]]) -> bool:
    near = {(a, b) for chain in chains for a, b in zip(chain, [*chain[1:], chain[0]], strict=True)}
    rows = np.flatnonzero((timeline.flow >= 0) & of_kind(timeline, *SENDS))
    sent = set(zip(timeline.rank[rows].tolist(), timeline.peer[rows].tolist(), strict=True))
    return sent <= near | {(b, a) for a, b in near}
