"""Torch's own distributed training runs on the virtual cluster unmodified and learns what it learns on gloo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import labkit
from labkit.timeline.metrics import hidden_communication_share

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
]


def _model(width: int = 32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 16)
    ).double()


def _steps(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    draw = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 16, dtype=torch.float64, generator=draw)).pow(2).mean().backward()
        optimizer.step()


def ddp(kind: str) -> list[torch.Tensor]:
    model = _model()
    wrapped = nn.parallel.DistributedDataParallel(
        model, bucket_cap_mb=0.005, find_unused_parameters=kind == "unused", gradient_as_bucket_view=kind == "view"
    )
    if kind == "hook":

        def mean(state, bucket):  # type: ignore[no-untyped-def]  # torch wants no annotations as text
            future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
            return future.then(lambda done: done.value()[0] / dist.get_world_size())

        wrapped.register_comm_hook(None, mean)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    if kind == "no_sync":
        with wrapped.no_sync():
            wrapped(torch.ones(2, 16, dtype=torch.float64) * dist.get_rank()).sum().backward()
    _steps(wrapped, optimizer)
    return [parameter.detach().clone() for parameter in model.parameters()]


def pipeline(name: str) -> list[torch.Tensor]:
    from torch.distributed import pipelining

    torch.manual_seed(0)
    rank, size, device = dist.get_rank(), dist.get_world_size(), torch.device("cpu")
    layers = [nn.Linear(16, 16) for _ in range(2 * size)]
    schedule_class = getattr(pipelining, name)
    schedule: Any
    if name in ("ScheduleGPipe", "Schedule1F1B"):
        stage = pipelining.PipelineStage(nn.Sequential(layers[2 * rank], layers[2 * rank + 1]), rank, size, device)
        schedule = schedule_class(stage, 4, loss_fn=nn.MSELoss())
    else:
        stages = [pipelining.PipelineStage(layers[at], at, 2 * size, device) for at in (rank, rank + size)]
        schedule = schedule_class(stages, 4, loss_fn=nn.MSELoss())
    inputs, target = torch.randn(8, 16), torch.randn(8, 16)
    for _ in range(2):
        if rank == 0:
            schedule.step(inputs)
        elif rank == size - 1:
            schedule.step(target=target, losses=[])
        else:
            schedule.step()
    return [p.grad.clone() for layer in layers for p in layer.parameters() if p.grad is not None]


def sharded() -> list[torch.Tensor]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = _model(), init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    _steps(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return [parameter.full_tensor().detach() for parameter in model.parameters()]  # type: ignore[operator]


def tensor_parallel() -> list[torch.Tensor]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = parallelize_module(_model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    out = model(torch.ones(4, 16, dtype=torch.float64))
    out.sum().backward()
    return [out.detach()]


def zero_redundancy() -> list[torch.Tensor]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = _model()
    wrapped = nn.parallel.DistributedDataParallel(model)
    _steps(wrapped, ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.Adam, lr=0.1))
    return [parameter.detach().clone() for parameter in model.parameters()]


def mesh_of_groups() -> list[torch.Tensor]:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    inner = torch.ones(2) * dist.get_rank()
    dist.all_reduce(inner, group=mesh.get_group("tensor"))
    outer = inner.clone()
    dist.all_reduce(outer, group=mesh["data"].get_group())
    return [inner, outer]


def checkpoint(folder: str) -> list[torch.Tensor]:
    from torch.distributed import checkpoint as saved

    saved.save({"weight": torch.ones(4) * 3}, checkpoint_id=folder)
    loaded = {"weight": torch.zeros(4)}
    saved.load(loaded, checkpoint_id=folder)
    return [loaded["weight"]]


def _compare(fn: Callable[..., list[torch.Tensor]], *args: object) -> labkit.Run:
    virtual = labkit.run(fn, *args, on=labkit.virtual(4), echo=False)
    local = labkit.run(fn, *args, on=labkit.local(4, device="cpu"), echo=False)
    for rank, (ours, theirs) in enumerate(zip(virtual.results, local.results, strict=True)):
        assert len(ours) == len(theirs) > 0, rank
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, msg=lambda text, rank=rank: f"rank {rank}: {text}")
    return virtual


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", ["plain", "hook", "no_sync"])
def test_distributed_data_parallel(kind: str) -> None:
    _compare(ddp, kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["unused", "view"])
def test_distributed_data_parallel_with_its_other_options(kind: str) -> None:
    _compare(ddp, kind)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["ScheduleGPipe", "Schedule1F1B", "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble"]
)
def test_pipelining(name: str) -> None:
    _compare(pipeline, name)


@pytest.mark.long
@pytest.mark.parametrize("fn", [tensor_parallel, zero_redundancy])
def test_sharded_layers_and_optimizers(fn: Callable[[], list[torch.Tensor]]) -> None:
    _compare(fn)


@pytest.mark.in_turn
def test_fully_shard() -> None:
    _compare(sharded)


@pytest.mark.in_turn
def test_device_mesh() -> None:
    _compare(mesh_of_groups)


@pytest.mark.long
def test_checkpoint(tmp_path: Path) -> None:
    _compare(checkpoint, str(tmp_path))


def _big_steps(bucket_cap_mb: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(6)))
    wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)
    for _ in range(2):
        wrapped(torch.ones(256, 512)).sum().backward()


@pytest.mark.in_turn
def test_ddp_hides_its_communication_behind_backward_and_one_bucket_at_the_end_cannot() -> None:
    world = labkit.virtual(4, gpu="l4", link="nvlink4")
    small, one = (labkit.run(_big_steps, cap, on=world, echo=False).timeline for cap in (1, 1000))
    assert len(small.spans(rank=0, kind="all_reduce")) > len(one.spans(rank=0, kind="all_reduce"))
    assert hidden_communication_share(small) > 0.4 > 0.1 > hidden_communication_share(one)
    assert small.makespan_ns < one.makespan_ns
