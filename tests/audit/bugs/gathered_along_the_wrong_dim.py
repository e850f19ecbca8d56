"""The parts of a column-parallel layer's output are put one below the other, not side by side: the next layer reads other samples' features. Both shapes agree.

Source: pytorch/torchtitan#3206
Kind: wrong
Ranks: all
Step: 0
Tensor: the hidden activations
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


class GatherColumns(torch.autograd.Function):
    """Gathers the columns that the ranks hold; on the way back a rank gets the gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(world_size)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, dim=0).view(len(x), -1)  # WRONG <- here
        # RIGHT: return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, grad):
        return grad.view(world_size, -1, grad.shape[1] // world_size)[rank].contiguous()  # WRONG
        # RIGHT: return grad.chunk(world_size, dim=1)[rank].contiguous()


torch.manual_seed(0)
first, second = nn.Linear(8, 32), nn.Linear(32, 1)
up = nn.Parameter(first.weight.detach().chunk(world_size, 0)[rank].clone())
optimizer = torch.optim.SGD([up, *second.parameters()], lr=0.1)
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)

for step in range(4):
    batch = slice(16 * step, 16 * step + 16)
    hidden = torch.relu(GatherColumns.apply(inputs[batch] @ up.T))  # <- here
    loss = (second(hidden) - targets[batch]).square().mean()  # <- seen
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in second.parameters()).item())
dist.destroy_process_group()
