"""Every rank adds the whole bias of a row-parallel layer before the all-reduce, which adds it as many times as there are ranks.

Source: awslabs/slapo#10
Kind: wrong
Ranks: all
Step: 0
Tensor: the output of the row-parallel layer
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


torch.manual_seed(0)
first, second = nn.Linear(8, 32), nn.Linear(32, 8)  # the same on every rank; each keeps its part
up = nn.Parameter(first.weight.detach().chunk(world_size, 0)[rank].clone())
up_bias = nn.Parameter(first.bias.detach().chunk(world_size)[rank].clone())
down = nn.Parameter(second.weight.detach().chunk(world_size, 1)[rank].clone())
down_bias = nn.Parameter(second.bias.detach().clone())
optimizer = torch.optim.SGD([up, up_bias, down, down_bias], lr=0.1)
inputs = torch.randn(64, 8)

for step in range(4):
    x = inputs[16 * step : 16 * step + 16]
    hidden = torch.relu(nn.functional.linear(x, up, up_bias))
    output = SumOverRanks.apply(nn.functional.linear(hidden, down, down_bias))  # WRONG <- here
    # RIGHT: output = SumOverRanks.apply(nn.functional.linear(hidden, down)) + down_bias
    loss = (output - x.roll(1, 1)).square().mean()  # <- seen
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", down_bias.double().abs().sum().item())
dist.destroy_process_group()
