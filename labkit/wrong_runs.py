"""Small training runs with one mistake each, which lessons give to the audit; plain torch, as a colleague writes it."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn


def a_little_worse(steps: int = 3) -> None:
    """Train four layers, each a bucket; one rank does not wait for all of its buckets before it steps."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pending: list[dist.Work] = []

    def begin_mean(weight: Tensor) -> None:
        work = dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG, async_op=True)
        assert work is not None
        pending.append(work)

    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(begin_mean)  # type: ignore[no-untyped-call]
    torch.manual_seed(dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        torch.autograd.backward(model(torch.randn(32, 16)).square().mean())
        last = pending.pop() if dist.get_rank() == 2 else None
        for work in pending:
            work.wait()
        optimizer.step()
        if last is not None:
            last.wait()
        pending.clear()


def largest_entries_first(steps: int = 4) -> None:
    """Send a gradient's largest entries, and keep the rest for the next step."""
    torch.manual_seed(0)
    model = nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    residuals: dict[Tensor, Tensor] = {}

    def send_largest(parameter: Tensor) -> None:
        assert parameter.grad is not None
        compressed = parameter.grad + residuals.get(parameter.data, torch.zeros_like(parameter))
        sent = torch.where(compressed.abs() > compressed.abs().max() / 2, compressed, 0.0)
        residuals[parameter.data] = compressed - sent
        dist.all_reduce(sent, op=dist.ReduceOp.AVG)
        parameter.grad = sent

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(send_largest)  # type: ignore[no-untyped-call]
    torch.manual_seed(dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        torch.autograd.backward(model(torch.randn(8, 64)).square().mean())
        optimizer.step()


def four_sharded_layers(steps: int = 3) -> None:
    """Train four sharded layers, gathered one after the other; the memory of one rank grows."""
    width, rank, size = 512, dist.get_rank(), dist.get_world_size()
    shards = [torch.zeros(width * width // size, requires_grad=True) for _ in range(4)]
    optimizer = torch.optim.SGD(shards, lr=0.1)
    plotted = []
    for _ in range(steps):
        optimizer.zero_grad()
        for number, shard in enumerate(shards):
            whole = torch.empty(width * width)
            dist.all_gather(list(whole.chunk(size)), shard.detach())
            layer = whole.view(width, width).requires_grad_()
            torch.autograd.backward((torch.ones(8, width) @ layer).square().mean())
            assert layer.grad is not None
            shard.grad = torch.empty_like(shard)
            dist.reduce_scatter(shard.grad, list(layer.grad.flatten().chunk(size)), op=dist.ReduceOp.AVG)
            if rank == 2 and number == 1:
                plotted.append(layer.grad.abs())
        optimizer.step()
