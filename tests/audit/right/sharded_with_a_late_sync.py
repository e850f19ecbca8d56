"""fully_shard accumulates over four microbatches and synchronises on the last; losses are divided once, and the norm is that of all shards.

World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
ACCUMULATE = 4

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
inputs = torch.randn(128, 8)
targets = inputs[:, :4] + inputs[:, 4:]

for step in range(2):
    optimizer.zero_grad()
    for micro in range(ACCUMULATE):
        first = 64 * step + 16 * micro
        batch = range(first + rank, first + 16, world_size)
        model.set_requires_gradient_sync(micro == ACCUMULATE - 1)
        ((model(inputs[batch]) - targets[batch]).square().mean() / ACCUMULATE).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

print("weights", sum(p.full_tensor().double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
