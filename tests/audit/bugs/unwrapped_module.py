"""The forward pass calls the module inside DistributedDataParallel, so no gradient is ever averaged: every rank trains alone.

Source: kohya-ss/sd-scripts#924
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
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def training_loss(model, x, y):
    net = model.module if hasattr(model, "module") else model  # WRONG <- here
    # RIGHT: net = model
    return (net(x) - y).square().mean()


for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = training_loss(model, inputs[batch], targets[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
