"""Gradients are summed with reduce, which gives the sum to rank 0 alone: the others step with something unfinished.

Source: pytorch/pytorch#76527
Kind: wrong
Ranks: 1, 2, 3
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
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.reduce(parameter.grad, dst=0)  # WRONG <- here
        # RIGHT: dist.all_reduce(parameter.grad)
        parameter.grad /= world_size
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
