"""set_requires_gradient_sync(False) is called before the accumulation and never undone: fully_shard reduces no gradient, and nothing trains.

Source: pytorch/pytorch#118298
Kind: wrong
Ranks: all
Step: 0
Tensor: every gradient
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

ACCUMULATE = 2

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
inputs = torch.randn(128, 8)
targets = inputs.sum(1, keepdim=True)

for step in range(4):
    optimizer.zero_grad()
    for micro in range(ACCUMULATE):
        first = 32 * step + 16 * micro
        batch = range(first + rank, first + 16, world_size)
        model.set_requires_gradient_sync(False)  # WRONG <- here
        # RIGHT: model.set_requires_gradient_sync(micro == ACCUMULATE - 1)
        ((model(inputs[batch]) - targets[batch]).square().mean() / ACCUMULATE).backward()
    optimizer.step()  # <- seen

print("weights", sum(p.full_tensor().double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
