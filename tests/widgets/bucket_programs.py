"""A training step with three buckets for the bucket explorer to read."""

from __future__ import annotations

import torch
import torch.distributed as dist

import labkit


def step() -> None:
    """Send three gradients while backward goes on."""
    handles = []
    with labkit.span("forward"):
        weight = torch.ones(64, 64) @ torch.ones(64, 64)
    with labkit.span("backward"):
        for _ in range(3):
            weight = weight @ weight / weight.norm()
            handles.append(dist.all_reduce(torch.zeros(2**16), async_op=True))
    for handle in handles:
        handle.wait()
