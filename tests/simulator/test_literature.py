"""What the virtual cluster predicts, beside what papers and others' measurements say."""

from __future__ import annotations

import pytest

from tests.benchmarks import literature, megatron


def _hold(rows: list[literature.Row]) -> None:
    outside = [f"{row.what}: {row.predicted:.4g}, published {row.published:.4g}" for row in rows if not row.holds]
    assert not outside, "\n".join(outside)
    assert sum(row.within is not None for row in rows) >= 3


def test_bubbles_of_torchs_schedules_follow_their_closed_forms() -> None:
    _hold(list(literature.bubbles()))


def test_ring_and_tree_take_their_closed_forms() -> None:
    _hold(list(literature.latencies()))


def test_large_all_reduces_reach_the_bus_bandwidth_that_nccl_tests_report() -> None:
    _hold(list(literature.bandwidths()))


def test_megatrons_throughput_is_within_a_fifth_of_what_was_published() -> None:
    _hold(list(literature.throughputs(only=(1.7, 7.5, 39.1))))


@pytest.mark.long
def test_megatrons_throughput_up_to_310_billion_parameters() -> None:
    _hold(list(literature.throughputs()))


def test_the_interleaved_plan_does_every_microbatch_of_every_part_forwards_before_backwards() -> None:
    for stage in range(4):
        done: set[tuple[str, int, int]] = set()
        for kind, chunk, microbatch in megatron.interleaved(stage, 4, 8, 3):
            assert kind == "F" or ("F", chunk, microbatch) in done
            assert (kind, chunk, microbatch) not in done
            done.add((kind, chunk, microbatch))
        assert len(done) == 2 * 8 * 3
