"""Rank 0 asks all to stop by a file, and each rank looks for it by itself: one that looks before it is there begins another step alone.

Source: ai2cm/ace#1407
Kind: wrong
Ranks: 1, 2, 3
Step: 2
Tensor: -
Effect: late
World: 4
"""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
FLAG = Path("stop")

torch.manual_seed(0)
model = nn.Linear(8, 1)
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(8):
    batch = range(8 * step + rank, 8 * step + 8, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size
    optimizer.step()
    if rank == 0 and step == 2:
        FLAG.touch()
    # RIGHT: dist.barrier()
    if FLAG.exists():  # <- here
        break

dist.barrier()
print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
