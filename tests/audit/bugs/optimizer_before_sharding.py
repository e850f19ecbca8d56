"""The optimizer is made before fully_shard: it holds the parameters that sharding replaced, and nothing is ever trained.

Source: huggingface/accelerate#3394
Kind: wrong
Ranks: all
Step: 0
Tensor: every parameter
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
mesh = init_device_mesh("cpu", (world_size,))

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)  # WRONG <- here
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
# RIGHT: optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("weights", sum(p.full_tensor().double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
