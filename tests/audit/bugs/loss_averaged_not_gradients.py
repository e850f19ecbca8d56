"""The loss is averaged over the ranks before backward, as if gradients followed: all_reduce is not differentiated, and every rank steps with its own.

Source: pytorch/pytorch#121587
Kind: wrong
Ranks: all
Step: 0
Tensor: every gradient
Effect: replicas
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    with torch.no_grad():  # WRONG
        dist.all_reduce(loss)  # WRONG <- here
        loss /= world_size  # WRONG
    optimizer.zero_grad()
    loss.backward()
    # RIGHT: for parameter in model.parameters():
    # RIGHT:     dist.all_reduce(parameter.grad)
    # RIGHT:     parameter.grad /= world_size
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
