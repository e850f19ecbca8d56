"""The critical path against brute force: whatever lies on it, made longer, makes the run longer by as much."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.timeline import COMMUNICATION, COMPUTE, HOST, Timeline
from labkit.timeline.critical_path import Step, critical_path, in_words

# An operation of a small program: (kind, ranks, length). All ranks carry them out in the order of the list.
Operation = tuple[str, tuple[int, ...], int]


@dataclass
class Played:
    """What came of a program: spans with the number of the operation each belongs to, and when it ended."""

    spans: list[tuple[int, int, int, int, str, int]] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)
    now: list[int] = field(default_factory=list)

    def timeline(self) -> Timeline:
        calls = [row for row, span in enumerate(self.spans) if span[1] == COMMUNICATION]
        of = [self.spans[row][5] for row in calls]
        tables: dict[str, dict[str, Any]] = {
            "call": {
                "span": np.array(calls, dtype=np.int64),
                "group": np.array(["0"] * len(calls), dtype=np.str_),
                "number": np.array(of, dtype=np.int64),
                "blocking": np.array([not self.spans[row][4].startswith("async") for row in calls], dtype=bool),
            },
            "wait": {
                "span": np.array([wait for wait, _ in self.waits], dtype=np.int64),
                "of": np.array([call for _, call in self.waits], dtype=np.int64),
            },
        }
        rank, lane, start, end, kind, operation = zip(*self.spans, strict=True)
        flow = [number if word in ("send", "recv") else -1 for number, word in zip(operation, kind, strict=True)]
        word = ["all_reduce" if each.startswith("async") else each for each in kind]
        return Timeline(rank, lane, start, end, word, word, flow=flow, tables=tables)


def play(operations: list[Operation], num_ranks: int, longer: int = -1) -> Played:
    """Carry out the program: a call ends its length after its last rank came to it."""
    played = Played(now=[0] * num_ranks)
    now = played.now
    posted: list[tuple[int, int, int]] = []  # rank, row, end of calls nobody has waited for yet
    for number, (kind, ranks, length) in enumerate(operations):
        length += number == longer
        if kind == "compute":
            (rank,) = ranks
            played.spans.append((rank, COMPUTE, now[rank], now[rank] + length, "span", number))
            now[rank] += length
        elif kind == "wait":
            (rank,) = ranks
            for mine in [each for each in posted if each[0] == rank]:
                posted.remove(mine)
                played.waits.append((len(played.spans), mine[1]))
                until = max(now[rank], mine[2])
                played.spans.append((rank, HOST, now[rank], until, "wait", number))
                now[rank] = until
        else:
            ends = max(now[rank] for rank in ranks) + length
            words = ("send", "recv") if kind == "message" else (kind,) * len(ranks)
            for rank, word in zip(ranks, words, strict=True):
                if kind == "async":
                    posted.append((rank, len(played.spans), ends))
                played.spans.append((rank, COMMUNICATION, now[rank], ends, word, number))
                now[rank] = now[rank] if kind == "async" else ends
    return played


def _program(num_ranks: int) -> st.SearchStrategy[list[Operation]]:
    rank = st.integers(0, num_ranks - 1)
    everybody = tuple(range(num_ranks))
    length = st.integers(1, 9)
    pair = st.permutations(everybody).map(lambda order: tuple(order[:2]))
    operation = st.one_of(
        st.tuples(st.just("compute"), rank.map(lambda each: (each,)), length),
        st.tuples(st.just("wait"), rank.map(lambda each: (each,)), st.just(0)),
        st.tuples(st.just("message"), pair, length),
        st.tuples(st.sampled_from(["all_reduce", "async"]), st.just(everybody), length),
    )
    ended: list[Operation] = [("wait", (each,), 0) for each in everybody]
    begun: list[Operation] = [("compute", (each,), 1) for each in everybody]
    return st.lists(operation, min_size=1, max_size=14).map(lambda some: begun + some + ended)


@pytest.mark.in_turn
@given(st.integers(2, 4).flatmap(lambda n: st.tuples(st.just(n), _program(n))))
def test_what_lies_on_the_path_made_longer_makes_the_run_longer(drawn: tuple[int, list[Operation]]) -> None:
    num_ranks, operations = drawn
    played = play(operations, num_ranks)
    timeline = played.timeline()
    makespan = max(span[3] for span in played.spans)
    critical = {
        number
        for number in range(len(operations))
        if max(span[3] for span in play(operations, num_ranks, longer=number).spans) > makespan
    }
    steps = critical_path(timeline)
    assert sum(step.end_ns - step.start_ns for step in steps) == makespan
    assert all(before.end_ns == after.start_ns and before.rank == after.from_rank for before, after in pairwise(steps))
    assert (steps[0].start_ns, steps[-1].end_ns) == (0, makespan)
    assert _operations_on(steps, played) <= critical


def _operations_on(steps: list[Step], played: Played) -> set[int]:
    found = set()
    for step in steps:
        if step.kind == "call":
            found.add(played.spans[step.row][5])
        else:
            inside = [
                number
                for rank, lane, start, end, _, number in played.spans
                if rank == step.rank and lane == COMPUTE and start >= step.start_ns and end <= step.end_ns
            ]
            found.update(inside)
            assert sum(
                end - start for _, lane, start, end, _, number in played.spans if number in inside and lane == COMPUTE
            ) == (step.end_ns - step.start_ns)
    return found


def test_a_late_sender_is_on_the_path_of_its_receiver() -> None:
    late: list[Operation] = [("compute", (0,), 10), ("compute", (1,), 1), ("message", (0, 1), 5), ("compute", (1,), 3)]
    timeline = play(late, 2).timeline()
    steps = critical_path(timeline)
    assert [(s.from_rank, s.rank, s.start_ns, s.end_ns, s.kind) for s in steps] == [
        (0, 0, 0, 10, "program"), (0, 1, 10, 15, "call"), (1, 1, 15, 18, "program")
    ]  # fmt: skip
    text = in_words(timeline, steps)
    assert "computing 72 %, communicating 28 %, neither 0 %; it visits 2 ranks and changes ranks 1 time." in text


def test_communication_hidden_under_computation_is_not_on_the_path() -> None:
    hidden: list[Operation] = [
        ("async", (0, 1), 4), ("compute", (0,), 9), ("compute", (1,), 8), ("wait", (0,), 0), ("wait", (1,), 0),
    ]  # fmt: skip
    steps = critical_path(play(hidden, 2).timeline())
    assert [(step.rank, step.kind) for step in steps] == [(0, "program")]


def test_an_empty_timeline_has_no_path_and_an_instant_has_one_of_no_length() -> None:
    assert critical_path(Timeline()) == []
    instant = Timeline([0], [COMPUTE], [5], [5], ["x"], ["span"])
    assert critical_path(instant) == []
    assert in_words(instant, []) == "No critical path: nothing was recorded."


def test_without_a_table_of_calls_every_call_counts_as_one_that_blocks() -> None:
    timeline = Timeline(
        [0, 0, 1], [COMPUTE, COMMUNICATION, COMMUNICATION], [0, 6, 1], [6, 8, 8], ["f", "send", "recv"],
        ["span", "send", "recv"], flow=[-1, 0, 0], peer=[-1, 1, 0],
    )  # fmt: skip
    assert [(s.from_rank, s.rank, s.start_ns) for s in critical_path(timeline)] in (
        [(0, 0, 0), (0, 1, 6)],
        [(0, 0, 0), (0, 0, 6)],
    )


@pytest.mark.parametrize("num_ranks", [2, 5])
def test_ranks_that_wait_for_each_other_at_the_same_instant_do_not_go_round_in_circles(num_ranks: int) -> None:
    instant = np.zeros(num_ranks, dtype=np.int64)
    ranks = np.arange(num_ranks)
    tables = {"call": {"span": ranks, "group": np.array(["0"] * num_ranks), "number": instant, "blocking": instant + 1}}
    word = ["all_reduce"] * num_ranks
    timeline = Timeline(ranks, instant + 1, instant, instant, word, word, tables=tables)
    assert critical_path(timeline) == []


@pytest.mark.parametrize("origin", [0, 1_760_000_000_000_000_000])
def test_times_since_1970_are_told_to_the_nanosecond(origin: int) -> None:
    late: list[Operation] = [("compute", (0,), 10), ("compute", (1,), 1), ("message", (0, 1), 5), ("compute", (1,), 3)]
    small = play(late, 2).timeline()
    timeline = Timeline(
        small.rank, small.lane, small.start_ns + origin, small.end_ns + origin, small.name, small.kind,
        flow=small.flow, tables=small.tables,
    )  # fmt: skip
    assert "computing 72 %, communicating 28 %, neither 0 %" in in_words(timeline, critical_path(timeline))
