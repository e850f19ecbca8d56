"""Nodes that are lost: spares take their place, the run goes on with fewer, or it waits; the policy says the same."""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import labkit
from labkit.errors import ConfigError
from labkit.failures import Disk, Failure, Kill, Policy, PowerCut, Restarts, interruptions, replay_policy

SMALL = Policy(step_s=1.0, save_every=5, save_s=0.5, detect_s=0.05, restart_s=3.0, reload_s=1.0, repair_s=60.0)
TIMES: dict[str, Any] = {"rendezvous_s": 1.0, "start_s": 2.0, "boot_s": 60.0}


def begins() -> tuple[int, float]:
    """Return how many ranks there are, and when they began; two calls."""
    began = time.monotonic()
    dist.barrier()
    dist.barrier()
    return dist.get_world_size(), began


def _run(failures: list[Failure], **how: Any) -> labkit.Run[Any]:
    restarts = Restarts(2, **TIMES, **how)
    return labkit.run(begins, on=labkit.virtual(4, gpus_per_node=2, failures=failures, restarts=restarts), echo=False)


@pytest.mark.in_turn
def test_a_lost_node_is_waited_for_replaced_or_gone_on_without_until_it_is_back() -> None:
    lost = PowerCut(node=1, call=2)
    assert _run([lost]).results == [(4, pytest.approx(63.1))] * 4
    assert _run([lost], spares=1).results == [(4, pytest.approx(3.1))] * 4
    fewer = _run([lost], min_nodes=1)
    assert fewer.results == [(2, pytest.approx(3.1))] * 2
    assert fewer.timeline is not None and fewer.timeline.num_ranks == 4
    shown = [(span.rank, span.name) for span in fewer.timeline.spans(kind="failure").rows()]
    assert (1, "restart 1 of 2 on 1 node") in shown and (2, "power cut of node 1") in shown


def test_a_node_that_is_back_joins_at_the_next_restart() -> None:
    def waits() -> int:
        time.sleep(100.0)
        dist.barrier()
        return dist.get_world_size()

    failures = [PowerCut(node=1, at_s=1.0), Kill(0, at_s=80.0)]
    world = labkit.virtual(4, gpus_per_node=2, failures=failures, restarts=Restarts(2, **TIMES, min_nodes=1))
    run = labkit.run(waits, on=world, echo=False)
    assert run.results == [4] * 4 and run.elapsed_ns / 1e9 == pytest.approx(80.1 + 3 + 100, abs=0.01)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="min_nodes=0 is no number of nodes; use 1 or more"):
        Restarts(1, min_nodes=0)
    with pytest.raises(ConfigError, match="min_nodes=3 of 2 nodes"):
        labkit.virtual(4, gpus_per_node=2, restarts=Restarts(1, min_nodes=3))
    with pytest.raises(ConfigError, match="nodes change places"):
        labkit.virtual(4, gpus_per_node=2, restarts=Restarts(1, spares=1), disk=Disk(tmp_path, per_node=True))


def trains(policy: Policy, num_ranks: int, num_steps: int) -> None:
    """Do what the policy describes on as many ranks as there are: with fewer, a step takes so much longer."""
    saved, begin = Path("step"), 0
    if os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
        time.sleep(policy.reload_s)
        begin = int(saved.read_text()) if saved.exists() else 0
    for step in range(begin, num_steps):
        time.sleep(policy.step_s * num_ranks / dist.get_world_size())
        dist.barrier()
        if (step + 1) % policy.save_every == 0:
            time.sleep(policy.save_s)
            if dist.get_rank() == 0:
                Path("step.new").write_text(str(step + 1))
                Path("step.new").replace("step")


def _both(num_nodes: int, gpus: int, num_steps: int, mean_s: float, seed: int, how: str) -> tuple[float, float]:
    early = list(itertools.takewhile(lambda at_s: at_s < 8 * num_steps, interruptions(mean_s, seed)))
    cuts = [PowerCut(node=1, at_s=at_s) for at_s in early]
    fewer = how == "fewer nodes"
    restarts = Restarts(len(cuts), **TIMES, spares=0 if fewer else 1, min_nodes=2 if fewer else None)
    world = labkit.virtual(num_nodes * gpus, gpus_per_node=gpus, failures=cuts, restarts=restarts)
    run = labkit.run(trains, SMALL, world.world_size, num_steps, on=world, echo=False)
    policy = replace(SMALL, nodes=num_nodes) if fewer else replace(SMALL, spares=1)
    alone = replay_policy(policy, interruptions(mean_s, seed), num_steps=num_steps)
    return num_steps * SMALL.step_s / (run.elapsed_ns / 1e9), alone.goodput


@pytest.mark.in_turn
@pytest.mark.parametrize("how", ["fewer nodes", "a spare"])
def test_ranks_and_policy_agree_on_goodput(how: str) -> None:
    ranks, policy = _both(4, 1, 30, 30.0, 2, how)
    assert policy == pytest.approx(ranks, abs=0.01) and policy < 0.9


@pytest.mark.long
@pytest.mark.parametrize("how", ["fewer nodes", "a spare"])
def test_64_ranks_and_policy_agree_within_a_point_over_20_seeds(how: str) -> None:
    found = [_both(8, 8, 40, 40.0, seed, how) for seed in range(20)]
    ranks, policy = (sum(each) / len(found) for each in zip(*found, strict=True))
    assert policy == pytest.approx(ranks, abs=0.01), found
