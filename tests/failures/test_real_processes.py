"""Failures injected into real processes."""

from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import ConfigError, RankFailed, RunTimeout
from labkit.failures import Cut, Hang, Kill, Slow


def trains() -> list[float]:
    """Return how long each step took on this rank."""
    value = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([value], lr=0.5)
    took = []
    for _ in range(4):
        began = time.perf_counter()
        time.sleep(0.02)
        value.grad = torch.ones(2)
        optimizer.step()
        took.append(time.perf_counter() - began)
        dist.barrier()
    return took


def test_a_process_is_really_killed_at_its_step() -> None:
    with pytest.raises(RankFailed, match="rank 1 of 2 failed first: killed by SIGKILL"):
        labkit.run(trains, on=labkit.local(2, device="cpu", failures=[Kill(1, step=2)]), echo=False)


@pytest.mark.long
def test_a_process_that_is_stopped_is_found_and_a_slow_one_takes_longer() -> None:
    with pytest.raises(RunTimeout):
        labkit.run(trains, on=labkit.local(2, device="cpu", failures=[Hang(1, step=2)]), timeout=8, stall=2, echo=False)
    results = labkit.run(
        trains, on=labkit.local(2, device="cpu", failures=[Slow(1, factor=4, step=2)]), echo=False
    ).results
    assert min(results[1][2:]) > 0.08 > min(results[0])


def test_what_needs_virtual_time_is_refused() -> None:
    for failure in (Cut(0, 1, at_s=1.0), Kill(1, call=2)):
        with pytest.raises(ConfigError, match=r"needs virtual time; on labkit\.local"):
            labkit.local(2, failures=[failure])
