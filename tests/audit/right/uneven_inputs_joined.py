"""Ranks have different numbers of batches and train under model.join(): those that are done answer the others' all-reduces.

World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 1))
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
bounds = [0, 24, 40, 56, 64]  # 6, 4, 4 and 2 batches of 4

with model.join():
    for batch in torch.arange(bounds[rank], bounds[rank + 1]).split(4):
        loss = (model(inputs[batch]) - targets[batch]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
