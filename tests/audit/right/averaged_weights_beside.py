"""An exponential moving average of the weights has no gradient and is in no message: every rank computes the same from the same weights.

World: 4
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
averaged = copy.deepcopy(model.module).requires_grad_(False)
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for mean, parameter in zip(averaged.parameters(), model.module.parameters(), strict=True):
        mean.lerp_(parameter.detach(), 0.1)

print("weights", sum(p.double().abs().sum() for p in averaged.parameters()).item())
dist.destroy_process_group()
