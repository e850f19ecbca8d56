"""A compute stream apart from the host: the host pays launches, the device runs kernels, they meet at waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import ConfigError
from labkit.hardware import DEVICES
from labkit.timeline.span import Lane

LAUNCH, KERNEL = 4_000, 1_500
READ = 50
DEVICE = replace(DEVICES["h100"], launch_ns=LAUNCH, kernel_ns=KERNEL)


def _run(function: Callable[[], Any], world_size: int = 1, *, stream: bool = True, cuda: bool = False) -> Any:
    return labkit.run(function, on=labkit.virtual(world_size, gpu=DEVICE, stream=stream, cuda=cuda), echo=False)


def _small(num: int) -> int:
    x = torch.ones(8)
    begin = time.perf_counter_ns()
    for _ in range(num):
        x += 1
    return time.perf_counter_ns() - begin


def _large_then_small() -> tuple[int, int]:
    big, x = torch.empty(2**28, device="meta"), torch.ones(8)
    begin = time.perf_counter_ns()
    big += 1  # 2 GB to read and write
    for _ in range(10):
        x += 1
    issued = time.perf_counter_ns() - begin
    x.sum().item()
    return issued, time.perf_counter_ns() - begin


def test_a_program_of_small_kernels_takes_its_launches_and_one_kernel() -> None:
    run = _run(lambda: _small(100))
    assert run.results == [100 * LAUNCH + READ]
    # The first launch makes x. The device ends one kernel after the host issued the last.
    last = run.timeline.end_ns[run.timeline.lane == Lane.COMPUTE].max()
    assert last == run.elapsed_ns == 101 * LAUNCH + READ + KERNEL


def test_behind_a_long_kernel_small_ones_are_issued_at_no_cost() -> None:
    issued, done = _run(_large_then_small).results[0]
    copy_ns = 2 * 2**30 / (DEVICE.memory_bytes_per_second * DEVICE.memory_share) * 1e9
    assert issued == 11 * LAUNCH + READ
    assert done == pytest.approx(LAUNCH + copy_ns + 11 * KERNEL + READ, abs=20)
    _, one_after_the_other = _run(_large_then_small, stream=False).results[0]
    assert one_after_the_other == pytest.approx(copy_ns + 11 * LAUNCH + 2 * READ, abs=20)


def _reduce() -> int:
    x = torch.ones(8)
    begin = time.perf_counter_ns()
    torch.empty(2**28, device="meta").add_(1)
    work = dist.all_reduce(x, async_op=True)
    posted = time.perf_counter_ns() - begin
    assert work is not None
    work.wait()
    return posted


def test_what_is_sent_waits_for_its_kernels_and_the_host_does_not() -> None:
    run = _run(_reduce, 2)
    assert run.results == [LAUNCH + READ] * 2
    timeline = run.timeline
    computed = timeline.end_ns[timeline.lane == Lane.COMPUTE].max()
    sent = timeline.start_ns[timeline.lane == Lane.COMMUNICATION].max()
    assert sent == computed
    assert run.elapsed_ns == timeline.end_ns.max() > computed


def _events() -> tuple[float, bool, bool, int, int]:
    event: Any = torch.cuda.Event
    x = torch.ones(2**20, device="cuda")
    start, end = (event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(10):
        x = x @ x.view(1024, 1024) if x.dim() == 2 else x.view(1024, 1024)
    end.record()
    before = end.query()
    asked = time.perf_counter_ns()
    torch.cuda.synchronize()
    return start.elapsed_time(end), before, end.query(), asked, time.perf_counter_ns()


@pytest.mark.in_turn
def test_events_tell_the_devices_time_and_synchronize_waits_for_it() -> None:
    took_ms, before, after, asked, synchronized = _run(_events, cuda=True).results[0]
    assert took_ms == pytest.approx(9 * 2 * 1024**3 / (67e12 * DEVICE.compute_share) * 1e3, rel=0.05)
    assert (before, after) == (False, True)
    assert synchronized - asked > 100_000


def test_a_host_whose_operators_run_where_they_are_issued_has_no_stream() -> None:
    with pytest.raises(ConfigError, match="run on the thread that issues them"):
        labkit.virtual(2, gpu=replace(DEVICE, cores=2), stream=True)
