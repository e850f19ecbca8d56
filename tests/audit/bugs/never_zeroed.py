"""Nobody zeroes the gradients: each step goes along the sum of all gradients so far.

Source: meta-pytorch/torchforge#71
Kind: wrong
Ranks: all
Step: 1
Tensor: every gradient
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
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    # RIGHT: optimizer.zero_grad()
    loss.backward()  # <- here
    optimizer.step()  # <- here

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
