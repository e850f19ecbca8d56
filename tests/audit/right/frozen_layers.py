"""The first layers are frozen before wrapping: they get no gradient, and are not meant to.

World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
net[:3].requires_grad_(False)
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.01)
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in net.parameters()).item())
dist.destroy_process_group()
