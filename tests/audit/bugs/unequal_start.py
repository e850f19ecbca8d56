"""Every rank initialises the model from its own seed and nobody broadcasts: gradients are averaged, of four different models.

Source: pytorch/torchtitan#1777
Kind: wrong
Ranks: 1, 2, 3
Step: -1
Tensor: every parameter
Effect: replicas
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(1337 + rank)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))  # <- here
# RIGHT: for parameter in model.parameters():
# RIGHT:     dist.broadcast(parameter.data, src=0)
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(7))
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
