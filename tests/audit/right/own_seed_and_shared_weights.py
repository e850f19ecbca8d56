"""Every rank has its own seed, and draws its own noise and dropout; the model is equal nevertheless, because wrapping broadcasts it.

World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(1337 + rank)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1)))
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(7))
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    noisy = inputs[batch] + 0.1 * torch.randn(4, 8)
    loss = (model(noisy) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
