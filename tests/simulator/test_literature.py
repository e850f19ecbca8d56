"""What the virtual cluster predicts, beside what papers and others' measurements say."""

from __future__ import annotations

import pytest

from tests.benchmarks import literature, megatron


def _hold(rows: list[literature.Row]) -> None:
    outside = [f"{row.what}: {row.predicted:.4g}, published {row.published:.4g}" for row in rows if not row.holds]
    assert not outside, "\n".join(outside)
    assert sum(row.within is not None for row in rows) >= 3


@pytest.mark.long
def test_bubbles_of_torchs_schedules_follow_their_closed_forms() -> None:
    _hold(list(literature.bubbles()))


@pytest.mark.in_turn
def test_ring_and_tree_take_their_closed_forms() -> None:
    _hold(list(literature.latencies()))


@pytest.mark.in_turn
def test_large_all_reduces_reach_the_bus_bandwidth_that_nccl_tests_report() -> None:
    _hold(list(literature.bandwidths()))


def _off_on_average(rows: list[literature.Row]) -> float:
    return sum(abs(row.off) for row in rows) / len(rows)


@pytest.mark.in_turn
def test_megatrons_throughput_is_within_a_fifth_of_what_was_published_and_a_tenth_on_average() -> None:
    rows = list(literature.throughputs(only=(1.7, 7.5, 39.1)))
    _hold(rows)
    assert _off_on_average(rows) <= literature.AVERAGE


@pytest.mark.long
def test_megatrons_throughput_up_to_310_billion_parameters() -> None:
    rows = list(literature.throughputs())
    _hold(rows)
    assert _off_on_average(rows) <= literature.AVERAGE


def test_a_product_of_one_tile_more_than_a_wave_leaves_half_of_the_next_idle() -> None:
    wave = megatron.MULTIPROCESSORS
    assert megatron.full_waves(256 * wave, 128) == 1.0
    assert megatron.full_waves(256 * (wave + 1), 128) == pytest.approx((wave + 1) / (2 * wave))
    assert megatron.full_waves(8192, 8192) > 0.99


def test_the_interleaved_plan_does_every_microbatch_of_every_part_forwards_before_backwards() -> None:
    for stage in range(4):
        done: set[tuple[str, int, int]] = set()
        for kind, chunk, microbatch in megatron.interleaved(stage, 4, 8, 3):
            assert kind == "F" or ("F", chunk, microbatch) in done
            assert (kind, chunk, microbatch) not in done
            done.add((kind, chunk, microbatch))
        assert len(done) == 2 * 8 * 3
