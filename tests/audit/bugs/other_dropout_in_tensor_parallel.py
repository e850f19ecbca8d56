"""Tensor-parallel ranks drop different units of an activation that they all hold whole: from there on they compute on different inputs.

Source: awslabs/slapo#21
Kind: wrong
Ranks: all
Step: 0
Tensor: the dropout mask
Effect: replicas
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


torch.manual_seed(0)
head = nn.Linear(8, 1)  # held whole, so the same on every rank
inputs = torch.randn(64, 8)
torch.manual_seed(100 + rank)  # shards must differ
up = nn.Linear(8, 32 // world_size)
down = nn.Linear(32 // world_size, 8, bias=False)
optimizer = torch.optim.SGD([*head.parameters(), *up.parameters(), *down.parameters()], lr=0.1)
# RIGHT: torch.manual_seed(0)

for step in range(4):
    x = inputs[16 * step : 16 * step + 16]
    hidden = SumOverRanks.apply(down(torch.relu(up(x))))
    hidden = nn.functional.dropout(hidden, 0.5)  # <- here
    loss = (head(x + hidden)[:, 0] - x.sum(1)).square().mean()  # <- seen
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", head.weight.double().abs().sum().item())
dist.destroy_process_group()
