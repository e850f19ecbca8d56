"""zero_grad() stands inside the loop over microbatches: a step gets the gradient of the last one alone.

Source: bytetriper/RAE#67
Kind: wrong
Ranks: all
Step: 0
Tensor: every gradient
Effect: outcome
World: 4
"""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

MICROBATCHES = 4

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(256, 8)
targets = inputs.sum(1, keepdim=True)

for step in range(4):
    # RIGHT: optimizer.zero_grad()
    for microbatch in range(MICROBATCHES):
        optimizer.zero_grad()  # WRONG <- here
        first = 64 * step + 16 * microbatch
        batch = range(first + rank, first + 16, world_size)
        with model.no_sync() if microbatch < MICROBATCHES - 1 else contextlib.nullcontext():
            loss = (model(inputs[batch]) - targets[batch]).square().mean() / MICROBATCHES
            loss.backward()
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
