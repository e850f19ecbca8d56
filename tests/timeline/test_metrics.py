"""Every number against a count by hand or by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import ConfigError
from labkit.timeline import COMMUNICATION, COMPUTE, HOST, Timeline, metrics
from labkit.timeline.intervals import covered_before, total, union

intervals = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=8)


def _arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([begin for begin, _ in pairs], dtype=np.int64)
    return start, start + np.array([length for _, length in pairs], dtype=np.int64)


def _covered(pairs: list[tuple[int, int]]) -> set[int]:
    return {tick for begin, length in pairs for tick in range(begin, begin + length)}


@given(intervals)
def test_a_union_covers_what_its_intervals_cover_once(pairs: list[tuple[int, int]]) -> None:
    merged = union(*_arrays(pairs))
    assert total(merged) == len(_covered(pairs))
    assert (merged[0][1:] >= merged[1][:-1]).all()  # some may touch
    for time in range(0, 55, 3):
        assert covered_before(merged, time) == pytest.approx(sum(tick < time for tick in _covered(pairs)))


def two_ranks() -> Timeline:
    """Rank 0 computes 0-60 with an all_reduce 40-100 partly under it; rank 1 sends, receives and waits."""
    return Timeline(
        rank=[0, 0, 1, 1, 1, 1],
        lane=[COMPUTE, COMMUNICATION, COMMUNICATION, COMMUNICATION, HOST, COMMUNICATION],
        start_ns=[0, 40, 0, 10, 15, 60],
        end_ns=[60, 100, 20, 30, 30, 100],
        name=["forward", "all_reduce", "isend", "irecv", "wait", "all_reduce"],
        kind=["span", "all_reduce", "isend", "irecv", "wait", "all_reduce"],
        bytes=[0, 800, 100, 50, 100, 800],
        tables={
            "call": {
                "span": np.array([1, 2, 3, 5]),
                "group": np.array(["0"] * 4),
                "number": np.array([0, 0, 0, 0]),
                "blocking": np.array([True, False, False, True]),
            }
        },
    )


def test_overlapping_spans_are_busy_once() -> None:
    assert metrics.busy_ns(two_ranks()).tolist() == [100, 70]
    assert metrics.busy_share(two_ranks(), [COMPUTE]).tolist() == [0.6, 0.0]
    assert metrics.busy_share(Timeline(num_ranks=2)).tolist() == [0, 0]


def test_bytes_of_messages_and_payload_of_collectives_are_separate_numbers() -> None:
    assert metrics.bytes_sent(two_ranks()).tolist() == [0, 100]
    assert metrics.bytes_received(two_ranks()).tolist() == [0, 50]
    assert metrics.collective_payload_bytes(two_ranks()).tolist() == [800, 800]


def test_blocked_is_time_in_wait_or_in_a_call_that_blocks_while_nothing_moves() -> None:
    # Rank 0 computes until the all_reduce moves, at 60. Of rank 1 something moves whenever it stands in a call.
    assert metrics.wait_ns(two_ranks()).tolist() == [0, 0]
    calls = {key: value[[0, 3]] for key, value in two_ranks().tables["call"].items()} | {"span": np.array([0, 1])}
    late = Timeline(
        [0, 1], [COMMUNICATION] * 2, [40, 60], [100, 100], ["all_reduce"] * 2, ["all_reduce"] * 2,
        tables={"call": calls},
    )  # fmt: skip
    assert metrics.wait_ns(late).tolist() == [20, 0]
    assert metrics.busy_ns(late).tolist() == [40, 40]
    assert metrics.blocked_share(late).tolist() == [20 / 60, 0]


def test_hidden_communication_is_what_runs_while_the_same_rank_computes() -> None:
    assert metrics.hidden_communication_share(two_ranks(), rank=0) == 0  # it moves from 60 on
    assert metrics.hidden_communication_share(two_ranks(), rank=1) == 0
    assert metrics.hidden_communication_share(two_ranks()) == 0
    assert metrics.hidden_communication_share(Timeline(num_ranks=1)) == 0


def test_bus_bandwidth_has_the_factors_of_nccl_tests() -> None:
    factors = {
        "all_reduce": 1.5,
        "reduce_scatter": 0.75,
        "reduce_scatter_tensor": 0.75,
        "all_gather": 0.75,
        "all_gather_into_tensor_coalesced": 0.75,
        "all_to_all_single": 0.75,
        "gather": 0.75,
        "scatter": 0.75,
        "broadcast": 1.0,
        "reduce": 1.0,
        "isend": 1.0,
    }
    for kind, factor in factors.items():
        assert metrics.busbw(kind, 1e9, 1e9, 4) == pytest.approx(factor * 1e9), kind
    with pytest.raises(ConfigError, match="no bus bandwidth for 'barrier'"):
        metrics.busbw_factor("barrier", 4)
    with pytest.raises(ConfigError, match="duration must be above 0"):
        metrics.algbw(10, 0)


def test_a_collective_is_timed_from_its_last_begin_to_its_last_end() -> None:
    (timing,) = metrics.collective_timings(two_ranks())
    assert (timing.kind, timing.num_ranks, timing.bytes) == ("all_reduce", 2, 800)
    assert (timing.skew_ns, timing.duration_ns) == (20, 40)
    assert timing.algbw == pytest.approx(800 / 40e-9) and timing.busbw == pytest.approx(timing.algbw)
