"""The moving average of the weights is copied before DistributedDataParallel makes all ranks begin alike: every rank evaluates another average.

Source: m2lines/Samudra#326
Kind: wrong
Ranks: 1, 2, 3
Step: 0
Tensor: the averaged weights
Effect: replicas
World: 4
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

data = torch.Generator().manual_seed(0)
inputs = torch.randn(96, 8, generator=data)
targets = inputs.sum(1, keepdim=True)
torch.manual_seed(100 + rank)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
average = copy.deepcopy(model)  # WRONG <- here
model = DistributedDataParallel(model)
# RIGHT: average = copy.deepcopy(model.module)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(average.parameters(), model.module.parameters(), strict=True):
            slow.lerp_(fast, 0.1)  # <- seen

with torch.no_grad():
    mine = range(64 + rank, 96, world_size)
    total = (average(inputs[mine]) - targets[mine]).square().sum()  # <- seen
dist.all_reduce(total)
print("weights", sum(p.double().abs().sum() for p in average.parameters()).item())
dist.destroy_process_group()
