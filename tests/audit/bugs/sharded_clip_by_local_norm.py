"""Gradients of fully_shard are clipped through to_local(): every rank scales its shards by the norm of its shards.

Source: pytorch/pytorch#170862
Kind: wrong
Ranks: all
Step: 0
Tensor: the norm of the gradients
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
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(64, 8)
targets = inputs[:, :4] * 3

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.get_total_norm([p.grad.to_local() for p in model.parameters()])  # WRONG <- here
    # RIGHT: norm = nn.utils.get_total_norm([p.grad for p in model.parameters()]).full_tensor()
    for parameter in model.parameters():
        parameter.grad.to_local().mul_((0.5 / norm).clamp(max=1.0))
    optimizer.step()  # <- seen

print("weights", sum(p.full_tensor().double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
