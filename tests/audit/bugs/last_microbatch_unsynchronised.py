"""The condition of no_sync is off by one: the first microbatch is averaged, the last is not, and ranks step with their own gradients.

Source: modelscope/FunASR#3472
Kind: wrong
Ranks: all
Step: 0
Tensor: every gradient
Effect: replicas
World: 4
"""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
ACCUMULATE = 4

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
inputs = torch.randn(128, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for micro in range(8):
    batch = range(16 * micro + rank, 16 * micro + 16, world_size)
    quiet = micro % ACCUMULATE != 0  # WRONG <- here
    # RIGHT: quiet = (micro + 1) % ACCUMULATE != 0
    with model.no_sync() if quiet else contextlib.nullcontext():
        loss = (model(inputs[batch]) - targets[batch]).square().mean() / ACCUMULATE
        loss.backward()
    if (micro + 1) % ACCUMULATE == 0:
        optimizer.step()  # <- seen
        optimizer.zero_grad()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
