"""Every rank holds a shard of the gradients and clips by the norm of its shard: shards are scaled by different factors.

Source: pytorch/pytorch#72548
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

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
parameters = list(model.parameters())
flat = nn.utils.parameters_to_vector(parameters).detach()
shard = nn.Parameter(flat.chunk(world_size)[rank].clone())  # this rank's quarter of all parameters
optimizer = torch.optim.Adam([shard], lr=0.01, eps=1e-2)
inputs = torch.randn(64, 8)
targets = inputs[:, :4] * 3

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    model.zero_grad()
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in parameters])
    shard.grad = torch.empty_like(shard)
    dist.reduce_scatter(shard.grad, list((gradient / world_size).chunk(world_size)))
    norm = shard.grad.norm()  # <- here
    # RIGHT: norm = norm.square()
    # RIGHT: dist.all_reduce(norm)
    # RIGHT: norm = norm.sqrt()
    shard.grad *= (0.5 / norm).clamp(max=1.0)
    optimizer.step()  # <- seen
    dist.all_gather(list(flat.chunk(world_size)), shard.detach())
    nn.utils.vector_to_parameters(flat, parameters)

print("weights", flat.double().abs().sum().item())
dist.destroy_process_group()
