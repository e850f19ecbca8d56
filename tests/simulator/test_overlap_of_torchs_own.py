"""What torch's own DDP, fully_shard and pipelining overlap on virtual CUDA devices, derived by hand.

A layer's product takes 52.4 us forward and twice that backward; all else computes in no time that counts. On two ranks
a layer's gradients (16 KiB) take 16.4 us to all-reduce, and 8.2 us to gather or to reduce and scatter.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel

import labkit
from labkit.hardware import Device, Link
from labkit.simulator.streams import TAKES
from labkit.timeline import Timeline, metrics
from labkit.timeline.span import Lane

WIDTH, LAYERS = 64, 4
PRODUCT = 2 * WIDTH**3 / 10  # ns
BYTES = WIDTH * WIDTH * 4
LINK = Link("test link", 1e9, 0, "a link of this test", "none")
DEVICE = Device(
    "test", 10**12, 8e12, {"float32": 1e10}, "nvlink4", "a device of this test", launch_ns=10, compute_share=1.0,
    memory_share=1.0, kernel_ns=1,
)  # fmt: skip


def _run(function: Any, *args: Any, **more: Any) -> Any:
    return labkit.run(function, *args, on=labkit.virtual(2, gpu=DEVICE, link=LINK, cuda=True, **more), echo=False)


def _steps(model: nn.Module, num: int = 3) -> list[float]:
    """Train; return the losses, after a region for each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, losses = torch.ones(WIDTH, WIDTH, device="cuda"), []
    for number in range(num):
        with torch.cuda.nvtx.range(f"step {number}"):
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss)
    return [loss.item() for loss in losses]


def _layers() -> nn.Sequential:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False, device="cuda") for _ in range(LAYERS)))


def _last_step(timeline: Timeline, rank: int = 0) -> Timeline:
    """Return what a rank's device did in the last step."""
    (region,) = np.flatnonzero((timeline.rank == rank) & (timeline.name == "step 2"))
    start, end = timeline.start_ns[region], timeline.end_ns[region]
    return timeline.select(
        (timeline.rank == rank) & (timeline.start_ns >= start) & (timeline.end_ns <= end) & (timeline.lane != Lane.HOST)
    )


def _exposed_ns(timeline: Timeline) -> int:
    times = metrics.lane_times(timeline)
    return int((times.communication_ns - times.hidden_ns)[0])


def _calls(timeline: Timeline, kind: str) -> list[tuple[int, int]]:
    calls = timeline.select((timeline.lane == Lane.COMMUNICATION) & np.char.startswith(timeline.kind, kind))
    return list(zip(calls.start_ns.tolist(), calls.end_ns.tolist(), strict=True))


def _data_parallel() -> list[float]:
    return _steps(DistributedDataParallel(_layers(), bucket_cap_mb=BYTES / 2**20))


@pytest.mark.in_turn
def test_ddp_hides_every_bucket_but_the_last_behind_the_backward_pass() -> None:
    """
    default [layer 4][layer 3][layer 2][layer 1]     [optimizer]
    group            [ 4 ]    [ 3 ]    [ 2 ]   [ 1 ]
    """
    run = _run(_data_parallel)
    step = _last_step(run.timeline)
    calls = _calls(step, "all_reduce")
    assert [end - start for start, end in calls] == [BYTES] * LAYERS
    assert _exposed_ns(step) == pytest.approx(BYTES, rel=0.01)
    assert metrics.hidden_communication_share(step, 0) == pytest.approx(1 - 1 / LAYERS, rel=0.01)
    # A layer's backward pass is two products, and all but the last layer's are slowed by a bucket.
    slowed = BYTES * TAKES / (1 + TAKES)
    for (before, _), (after, _) in itertools.pairwise(calls[:-1]):
        assert after - before == pytest.approx(2 * PRODUCT + slowed, rel=0.01)
    again, serial = _run(_data_parallel), _run(_data_parallel, stream=False)
    assert np.array_equal(again.timeline.start_ns, run.timeline.start_ns)
    assert np.array_equal(again.timeline.end_ns, run.timeline.end_ns)
    assert run.results == again.results == serial.results


def _sharded(reshard: bool) -> list[float]:
    model = _layers()
    for layer in model:
        fully_shard(layer, reshard_after_forward=reshard)
    fully_shard(model)
    return _steps(model)


@pytest.mark.in_turn
@pytest.mark.parametrize("reshard", [True, False])
def test_fully_shard_gathers_ahead_and_scatters_behind(reshard: bool) -> None:
    """
    default    [1][2][3][4][layer 4][layer 3 ][layer 2  ][layer 1 ]
    gather  [1][2][3][4]   [4][3]   [.][2]    [.][1]
    scatter                         [4]       [3]        [2]       [1]

    The host is far ahead, so weights are gathered for the backward pass while the last layer computes forward. Gathers
    and scatters share the group's stream. Only the first gather and the last scatter have nothing beside them.
    Without resharding there are no gathers in the backward pass.
    """
    run = _run(_sharded, reshard)
    step = _last_step(run.timeline)
    gathers, scatters = _calls(step, "all_gather"), _calls(step, "reduce_scatter")
    assert len(gathers) == (2 if reshard else 1) * LAYERS
    assert len(scatters) == LAYERS
    assert {end - start for start, end in gathers + scatters} == {BYTES // 2}
    assert _exposed_ns(step) == pytest.approx(BYTES, rel=0.01)
    serial = _run(_sharded, reshard, stream=False)
    assert run.results == serial.results
    assert run.elapsed_ns < serial.elapsed_ns
    assert not any("torch.cuda.Stream" in problem.text for problem in run.timeline.problems)


def _pipeline(kind: type[Any]) -> list[float]:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    rank = dist.get_rank()
    torch.manual_seed(rank)
    layer = nn.Linear(WIDTH, WIDTH, bias=False, device="cuda")
    stage = PipelineStage(layer, rank, 2, torch.device("cuda", rank))
    schedule = kind(stage, LAYERS, loss_fn=lambda out, target: (out - target).sum())
    x = torch.ones(WIDTH * LAYERS, WIDTH, device="cuda")
    for number in range(3):
        with torch.cuda.nvtx.range(f"step {number}"):
            if rank == 0:
                schedule.step(x)
            else:
                schedule.step(target=x)
    assert layer.weight.grad is not None
    return layer.weight.grad.flatten()[:8].tolist()  # type: ignore[no-any-return]


def _products(timeline: Timeline) -> list[tuple[int, int]]:
    rows = timeline.name == "mm"
    return list(zip(timeline.start_ns[rows].tolist(), timeline.end_ns[rows].tolist(), strict=True))


def test_gpipe_sends_behind_the_next_microbatch_and_receives_after_the_one_before() -> None:
    """
    stage 0 [1][2][3] [4]
    moves      [1]   [2]   [3]   [4]
    stage 1       [1 ]  [2 ]  [3 ]  [4 ]

    The host of stage 1 posts a receive after the product before it, so the stream of the pair waits for that product.
    """
    run = _run(_pipeline, ScheduleGPipe)
    first, second = _last_step(run.timeline, 0), _last_step(run.timeline, 1)
    receives, products = _calls(second, "irecv"), _products(second)[:LAYERS]
    assert len(receives) == LAYERS
    for (_, comes), (begins, _) in zip(receives, products, strict=True):
        assert begins == pytest.approx(comes, abs=30)
    for (_, ends), (posted, comes) in zip(products[:-1], receives[1:], strict=True):
        assert posted == pytest.approx(ends, abs=30)
        assert comes - posted == pytest.approx(BYTES, abs=30)
    sends, products = _calls(first, "isend"), _products(first)[:LAYERS]
    assert sends[0][0] == pytest.approx(products[0][1], abs=30)
    assert products[1][0] == pytest.approx(products[0][1], abs=30)


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", [ScheduleGPipe, Schedule1F1B])
def test_a_pipeline_has_the_gradients_it_has_without_streams(kind: type[Any]) -> None:
    run, serial = _run(_pipeline, kind), _run(_pipeline, kind, stream=False)
    assert run.results == serial.results
