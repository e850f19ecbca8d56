"""Each rank ends when its own clock says that the job's time is over: where one rank is late the others begin a step that it no longer takes.

Source: QMCPACK/qmcpack#460
Kind: wrong
Ranks: all
Step: 0
Tensor: -
Effect: late
World: 4
"""

import time

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
LIMIT = 0.002  # seconds

torch.manual_seed(0)
model = nn.Linear(8, 1)
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
began = time.monotonic()

for step in range(8):
    over = torch.tensor([float(time.monotonic() - began > LIMIT)])
    # RIGHT: dist.broadcast(over, 0)
    if over.item():  # <- here
        break
    batch = range(8 * step + rank, 8 * step + 8, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size
    optimizer.step()

dist.barrier()
print("stopped together")
dist.destroy_process_group()
