"""The norm for clipping is added up over the tensor-parallel ranks for all parameters, also for those that every rank holds whole.

Source: NVIDIA-NeMo/RL#3788
Kind: wrong
Ranks: all
Step: 0
Tensor: the norm of the gradients
Effect: outcome
World: 2
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


class Block(nn.Module):
    """A norm that every rank holds whole, and an MLP cut into columns, then rows."""

    def __init__(self, dim, hidden):
        super().__init__()
        whole = nn.Linear(dim, hidden, bias=False), nn.Linear(hidden, dim, bias=False)
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Parameter(whole[0].weight.detach().chunk(world_size, 0)[rank].clone())
        self.down = nn.Parameter(whole[1].weight.detach().chunk(world_size, 1)[rank].clone())

    def forward(self, x):
        h = nn.functional.gelu(self.norm(x) @ self.up.T)
        return SumOverRanks.apply(h @ self.down.T)


torch.manual_seed(0)
model = Block(8, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(64, 8)  # the same on both ranks: there is no data parallelism here

for step in range(4):
    x = inputs[16 * step : 16 * step + 16]
    loss = (model(x) - 5 * x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for whole in model.norm.parameters():
        dist.all_reduce(whole.grad)
    shards = sum(p.grad.square().sum() for p in (model.up, model.down))
    wholes = sum(p.grad.square().sum() for p in model.norm.parameters())
    total = shards + wholes  # WRONG
    dist.all_reduce(total)  # WRONG <- here
    # RIGHT: dist.all_reduce(shards)
    # RIGHT: total = shards + wholes
    for parameter in model.parameters():
        parameter.grad *= (0.1 / total.sqrt()).clamp(max=1.0)
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.norm.parameters()).item())
dist.destroy_process_group()
