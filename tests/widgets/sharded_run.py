"""A recorded run of torch's fully_shard on virtual CUDA devices, whose streams overlap."""

from __future__ import annotations

import os
from functools import cache

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import labkit
from labkit.hardware import Device, Link
from labkit.timeline import Timeline

_WIDTH, _LAYERS = 64, 3
_LINK = Link("test link", 1e9, 0, "a link of this test", "none")
_DEVICE = Device(
    "test", 10**12, 8e12, {"float32": 1e10}, "nvlink4", "a device of this test", launch_ns=10, compute_share=1.0,
    memory_share=1.0, kernel_ns=1,
)  # fmt: skip


def _train() -> None:
    """Train two steps of layers that are sharded one by one, with batches that a stream of their own copies."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(_WIDTH, _WIDTH, bias=False, device="cuda") for _ in range(_LAYERS)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer, copies = torch.optim.SGD(model.parameters(), lr=0.1), torch.cuda.Stream()
    batches = [torch.ones(4 * _WIDTH, _WIDTH).pin_memory() for _ in range(2)]
    for batch in batches:
        with torch.cuda.stream(copies):
            x = batch.cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@cache
def sharded_run(num_ranks: int) -> Timeline:
    """Return the run of so many ranks: a default stream, one of copies, one of torch's own, and the group's."""
    world = labkit.virtual(num_ranks, gpu=_DEVICE, link=_LINK, cuda=True)
    return labkit.run(_train, on=world, echo=False).timeline
