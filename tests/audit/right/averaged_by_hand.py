"""The loop averages gradients itself, in one flat bucket, and the model is broadcast by hand: what DistributedDataParallel does.

World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(rank)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
for parameter in model.parameters():
    dist.broadcast(parameter.data, src=0)
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(7))
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    bucket = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(bucket)
    bucket /= world_size
    sizes = [p.numel() for p in model.parameters()]
    for parameter, part in zip(model.parameters(), bucket.split(sizes), strict=True):
        parameter.grad.copy_(part.view_as(parameter))
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
