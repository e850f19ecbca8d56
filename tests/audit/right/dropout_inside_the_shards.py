"""Tensor-parallel ranks drop different units of what each holds a part of, and the same units of what all hold: both are right.

World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


class SumOverRanks(torch.autograd.Function):
    """Adds what the ranks hold; their gradient passes unchanged."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def dropout(x, generator):
    return x * (torch.rand(x.shape, generator=generator) > 0.5) * 2


torch.manual_seed(0)
head = nn.Linear(8, 1)
up = nn.Parameter((torch.randn(32, 8) / 3).chunk(world_size, 0)[rank].clone())
down = nn.Parameter((torch.randn(8, 32) / 6).chunk(world_size, 1)[rank].clone())
optimizer = torch.optim.SGD([*head.parameters(), up, down], lr=0.1)
inputs = torch.randn(64, 8)
of_this_shard = torch.Generator().manual_seed(1000 + rank)
of_all = torch.Generator().manual_seed(1000)

for step in range(4):
    x = inputs[16 * step : 16 * step + 16]
    hidden = dropout(torch.relu(x @ up.T), of_this_shard)
    hidden = dropout(SumOverRanks.apply(hidden @ down.T), of_all)
    loss = (head(x + hidden)[:, 0] - x.sum(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", head.weight.double().abs().sum().item())
dist.destroy_process_group()
