"""Unions and what is built on them, beside sets of whole nanoseconds."""

from __future__ import annotations

import numpy as np
import pytest

from labkit.timeline import COMMUNICATION, COMPUTE, Timeline
from labkit.timeline.intervals import covered_before, total, union
from labkit.timeline.metrics import busy_ns, hidden_communication_share, lane_times, wait_ns
from labkit.timeline.transfers import transfer_table

Spans = list[tuple[int, int]]


def drawn(random: np.random.Generator) -> Spans:
    """Return spans that nest, touch, last 0 ns, or follow each other, sorted or not."""
    spans, ticks = [], int(random.choice([4, 30]))
    for _ in range(int(random.integers(0, 9))):
        start = int(random.integers(0, ticks))
        spans.append((start, start + int(random.integers(0, 6))))
    return sorted(spans) if random.random() < 0.5 else spans


def ticks_of(spans: Spans) -> set[int]:
    return {tick for start, end in spans for tick in range(start, end)}


def arrays(spans: Spans, origin: int = 0) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(spans, dtype=np.int64).reshape(-1, 2) + origin
    return table[:, 0], table[:, 1]


@pytest.mark.parametrize("origin", [0, 1_760_000_000_000_000_000])
def test_unions_and_what_lies_before_a_time_are_sets_of_ticks(origin: int) -> None:
    random = np.random.default_rng(0)
    for _ in range(400):
        one = drawn(random)
        first = union(*arrays(one, origin))
        assert total(first) == len(ticks_of(one))
        assert (first[0][1:] >= first[1][:-1]).all()  # disjoint and sorted; some may touch
        times = np.arange(-2, 40)
        before = [sum(tick < time for tick in ticks_of(one)) for time in times.tolist()]
        assert covered_before(first, times + origin).tolist() == before


def test_busy_hidden_and_waiting_times_are_sets_of_ticks() -> None:
    random = np.random.default_rng(1)
    for _ in range(200):
        ranks = int(random.integers(1, 4))
        lanes = [[drawn(random) for _ in (COMPUTE, COMMUNICATION)] for _ in range(ranks)]
        rows = [(r, lane, *span) for r, both in enumerate(lanes) for lane, spans in enumerate(both) for span in spans]
        rows = [rows[at] for at in random.permutation(len(rows))] if random.random() < 0.5 else rows
        blocking = random.integers(0, 2, len(rows))
        calls = [row for row, (_, lane, _, _) in enumerate(rows) if lane == 1]
        table = {"span": np.array(calls, dtype=np.int64), "blocking": blocking[calls]}
        moved = {row: sorted(random.integers(rows[row][2], rows[row][3] + 1, 2).tolist()) for row in calls[::2]}
        cuts = transfer_table([(row, *times) for row, times in moved.items()])
        rank, lane, start, end = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        kind = np.where(lane == 1, "all_reduce", "span")
        timeline = Timeline(
            rank, lane, start, end, kind, kind, tables={"call": table, "transfer": cuts}, num_ranks=ranks
        )
        compute = [ticks_of(both[0]) for both in lanes]
        communicate = [
            ticks_of([tuple(moved.get(row, (s, e))) for row, (r, at, s, e) in enumerate(rows) if at == 1 and r == each])
            for each in range(ranks)
        ]
        both = [len(a & b) for a, b in zip(compute, communicate, strict=True)]
        assert lane_times(timeline).hidden_ns.tolist() == both
        assert busy_ns(timeline).tolist() == [len(a | b) for a, b in zip(compute, communicate, strict=True)]
        whole = sum(map(len, communicate))
        assert hidden_communication_share(timeline) == pytest.approx(sum(both) / whole if whole else 0)
        stood = [
            [(s, e) for row, (r, _, s, e) in enumerate(rows) if r == each and row in calls and blocking[row]]
            for each in range(ranks)
        ]
        still = [ticks_of(spans) - a - b for spans, a, b in zip(stood, compute, communicate, strict=True)]
        assert wait_ns(timeline).tolist() == [len(ticks) for ticks in still]
