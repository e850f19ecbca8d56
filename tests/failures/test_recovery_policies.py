"""The policy alone: it agrees with ranks that fail, moves the right way, and holds 54 days of 2,048 nodes."""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist

import labkit
from labkit.errors import ConfigError
from labkit.failures import (
    Kill,
    Policy,
    PowerCut,
    Restarts,
    interruptions,
    published,
    replay,
    replay_policy,
    rows,
    young_interval_s,
)

SMALL = Policy(step_s=1.0, save_every=5, save_s=0.5, detect_s=0.05, restart_s=3.0, reload_s=1.0)
LARGE = Policy(step_s=10.0, save_every=40, save_s=10.0, detect_s=60.0, restart_s=300.0, reload_s=60.0)
LLAMA = published("llama3_54_days")


def trains(policy: Policy, num_steps: int) -> None:
    """Do what the policy describes, on ranks that may be killed."""
    saved, begin = Path("step"), 0
    if os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
        time.sleep(policy.reload_s)
        begin = int(saved.read_text()) if saved.exists() else 0
    for step in range(begin, num_steps):
        time.sleep(policy.step_s)
        dist.barrier()
        if (step + 1) % policy.save_every == 0:
            time.sleep(policy.save_s)
            if dist.get_rank() == 0:
                Path("step.new").write_text(str(step + 1))
                Path("step.new").replace("step")


def _both(num_ranks: int, num_steps: int, mean_s: float, seed: int) -> tuple[float, float]:
    early = itertools.takewhile(lambda at_s: at_s < 5 * num_steps, interruptions(mean_s, seed))
    kills = [Kill(number % num_ranks, at_s=at_s) for number, at_s in enumerate(early)]
    world = labkit.virtual(num_ranks, failures=kills, restarts=Restarts(len(kills), rendezvous_s=1.0, start_s=2.0))
    run = labkit.run(trains, SMALL, num_steps, on=world, echo=False)
    alone = replay_policy(SMALL, interruptions(mean_s, seed), num_steps=num_steps)
    return num_steps * SMALL.step_s / (run.elapsed_ns / 1e9), alone.goodput


@pytest.mark.in_turn
def test_ranks_and_policy_agree_on_goodput() -> None:
    for seed in (0, 2, 3):
        ranks, policy = _both(2, 40, 30.0, seed)
        assert policy == pytest.approx(ranks, abs=0.01) and policy < 0.9


@pytest.mark.long
def test_64_ranks_and_policy_agree_within_a_point_over_20_seeds() -> None:
    found = [_both(64, 40, 30.0, seed) for seed in range(20)]
    ranks, policy = (sum(each) / len(found) for each in zip(*found, strict=True))
    assert policy == pytest.approx(ranks, abs=0.01), found


def test_54_days_of_2048_nodes_take_less_than_a_second() -> None:
    began = time.process_time()
    result = replay_policy(LARGE, interruptions(LLAMA.mean_s), days=54)
    assert time.process_time() - began < 1.0
    assert result.total_s == 54 * 86_400 and 350 < result.num_interruptions < 490
    parts = result.num_steps * LARGE.step_s + result.saving_s + result.again_s + result.down_s
    assert parts == pytest.approx(result.total_s, rel=1e-3)


def _goodput(policy: Policy, mean_s: float = LLAMA.mean_s) -> float:
    return sum(replay_policy(policy, interruptions(mean_s, seed), days=54).goodput for seed in range(8)) / 8


@pytest.mark.in_turn
def test_goodput_moves_the_right_way() -> None:
    base = _goodput(LARGE)
    assert _goodput(LARGE, LLAMA.mean_s / 2) < base < _goodput(LARGE, LLAMA.mean_s * 2)
    assert _goodput(replace(LARGE, restart_s=900.0)) < base < _goodput(replace(LARGE, restart_s=60.0))
    assert _goodput(replace(LARGE, save_s=60.0)) < base < _goodput(replace(LARGE, save_s=1.0, flush_s=9.0))
    repairs = [_goodput(replace(LARGE, repair_s=86_400.0, spares=spares)) for spares in (0, 8, 32)]
    assert repairs[0] < repairs[1] < repairs[2] and repairs[2] == pytest.approx(base, abs=1e-9)


@pytest.mark.in_turn
def test_copies_fewer_nodes_and_lost_nodes_move_goodput_the_right_way() -> None:
    often = replace(LARGE, save_every=400)
    copies = replace(often, copy_every=40, copy_s=2.0, copy_reload_s=10.0)
    shares = [_goodput(replace(copies, copies_lost=share)) for share in (0.0, 0.3, 1.0)]
    assert _goodput(often) < shares[1] < shares[0] and shares[2] < shares[1]
    repair = replace(LARGE, repair_s=86_400.0)
    waits, shrinks = _goodput(repair), _goodput(replace(repair, nodes=2048))
    assert waits < shrinks < _goodput(LARGE) and waits < _goodput(replace(repair, node_share=0.5))
    assert _goodput(replace(repair, nodes=2048, replica_nodes=16)) < shrinks
    with pytest.raises(ConfigError, match="multiple of replica_nodes"):
        replace(LARGE, nodes=20, replica_nodes=16)
    with pytest.raises(ConfigError, match="are from 0 to 1"):
        replace(LARGE, node_share=2.0)


def test_the_best_interval_is_youngs() -> None:
    best_s = young_interval_s(LARGE.save_s, LLAMA.mean_s)
    assert best_s == pytest.approx((2 * 10.0 * 54 * 86_400 / 419) ** 0.5)
    best = _goodput(replace(LARGE, save_every=round(best_s / LARGE.step_s)))
    assert all(_goodput(replace(LARGE, save_every=steps)) < best for steps in (10, 160))


def test_published_counts_are_those_of_their_tables() -> None:
    assert LLAMA.interruptions == 419 == sum(int(row["interruptions"]) for row in rows("llama3_54_days"))
    assert LLAMA.mean_gpu_s / 86_400 / 365 == pytest.approx(5.8, abs=0.1)
    assert len(rows("byterobust_incidents")) == 17 and len(rows("failure_rates")) == 47
    with pytest.raises(ConfigError, match="there are byterobust_incidents, failure_rates, llama3_54_days"):
        rows("llama4")
    with pytest.raises(ConfigError, match="No cluster reported under the name"):
        published("llama4")


def test_failures_drawn_from_a_cluster_come_as_often_as_reported_and_run() -> None:
    drawn = replay("llama3_54_days", num_ranks=16_384, seconds=54 * 86_400)
    assert len(drawn) == pytest.approx(419, rel=0.15) and drawn == replay(
        "llama3_54_days", num_ranks=16_384, seconds=54 * 86_400
    )
    kinds = [type(failure) for failure in drawn]
    assert kinds.count(Kill) > kinds.count(PowerCut) > 10
    few = replay("llama3_54_days", num_ranks=2, seconds=20, times=1e7)
    assert few and labkit.virtual(2, failures=few).world_size == 2
    with pytest.raises(ConfigError, match="all three must be above 0"):
        replay("llama3_54_days", num_ranks=0, seconds=1)


@pytest.mark.parametrize("change", [{"step_s": 0.0}, {"save_every": 0}, {"save_s": -1.0}])
def test_a_policy_that_cannot_be_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="step_s must be above 0"):
        replace(SMALL, **change)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give one of the two"):
        replay_policy(SMALL, iter(()))


@pytest.mark.in_turn
def test_the_table_of_published_figures_says_what_the_replay_gives() -> None:
    def share(policy: Policy, mean_s: float, days: float) -> str:
        found = [replay_policy(policy, interruptions(mean_s, seed), days=days).goodput for seed in range(20)]
        return f"{100 * sum(found) / len(found):.1f} %"

    stalls = [Policy(10.0, 10, 1.0, 0.0, stall_s, 0.0) for stall_s in (600.0, 180.0)]
    shares = [
        share(LARGE, LLAMA.mean_s, 54), share(Policy(10.0, 180, 10.0, 600.0, 0.0, 0.0), 28 * 86_400 / 100, 28),
        *(share(policy, 18 * 60.0, 10) for policy in stalls),
    ]  # fmt: skip
    page = (Path(__file__).parents[2] / "docs" / "failures.md").read_text()
    table = [line.split(" | ")[2] for line in page.splitlines() if line.startswith(("| Llama", "| MegaS", "| FT-HSDP"))]
    assert table == shares
