"""Averaged gradients are the same on all ranks; their squared norm is added over the ranks once more, and clipping halves what it need not.

Source: modelscope/twinkle#290
Kind: wrong
Ranks: all
Step: 0
Tensor: the norm of the gradients
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    squared = sum(p.grad.square().sum() for p in model.parameters())
    dist.all_reduce(squared)  # WRONG <- here
    scale = (1.0 / squared.sqrt()).clamp(max=1.0)
    for parameter in model.parameters():
        parameter.grad *= scale
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
