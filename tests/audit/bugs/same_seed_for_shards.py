"""Every tensor-parallel rank draws its shard from the same seed: the shards are equal, and the layer is one quarter, four times.

Source: modelscope/ms-swift#7944
Kind: wrong
Ranks: all
Step: -1
Tensor: up.weight, down.weight
Effect: outcome
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


torch.manual_seed(1234)
norm = nn.LayerNorm(8)  # held whole, so the same on every rank
# RIGHT: torch.manual_seed(1234 + rank)
up = nn.Linear(8, 32 // world_size)  # <- here
down = nn.Linear(32 // world_size, 8, bias=False)
optimizer = torch.optim.SGD([*up.parameters(), *down.parameters()], lr=0.1)
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(7))

for step in range(4):
    x = inputs[16 * step : 16 * step + 16]
    output = SumOverRanks.apply(down(torch.relu(up(norm(x)))))
    loss = (output - x.roll(1, 1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("loss", loss.item())
dist.destroy_process_group()
