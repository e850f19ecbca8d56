"""Gradients are clipped while they are still multiplied by the loss scale: the norm is 1024 times too large, and next to nothing is left.

Source: Lightning-AI/pytorch-lightning#9599
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
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    # RIGHT: scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)  # <- here
    scaler.step(optimizer)  # <- seen
    scaler.update()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
