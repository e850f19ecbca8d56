"""A column-parallel layer returns to its input only what its own columns say; nobody adds the ranks' parts, and all that lies before it drifts.

Source: huggingface/transformers#48205
Kind: wrong
Ranks: all
Step: 0
Tensor: embed.weight, embed.bias
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


class CopyToRanks(torch.autograd.Function):
    """Passes an input that all ranks hold; on the way back it adds what the ranks say of it."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return SumOverRanks.forward(ctx, grad)


torch.manual_seed(0)
embed = nn.Linear(8, 8)
up = nn.Parameter((torch.randn(32, 8) / 3).chunk(world_size, 0)[rank].clone())
down = nn.Parameter((torch.randn(8, 32) / 6).chunk(world_size, 1)[rank].clone())
optimizer = torch.optim.SGD([*embed.parameters(), up, down], lr=0.1)
inputs = torch.randn(64, 8)

for step in range(4):
    x = inputs[16 * step : 16 * step + 16]
    hidden = embed(x)
    # RIGHT: hidden = CopyToRanks.apply(hidden)
    output = SumOverRanks.apply(torch.relu(hidden @ up.T) @ down.T)  # <- here
    loss = (output - x.roll(1, 1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("weights", embed.weight.double().abs().sum().item())
dist.destroy_process_group()
