"""The losses of the microbatches are means and are added up, not divided by their number: the step is four times too long.

Source: ApolloResearch/e2e_sae#70
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
ACCUMULATE = 4

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
inputs = torch.randn(128, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

for step in range(2):
    optimizer.zero_grad()
    for micro in range(ACCUMULATE):
        first = 64 * step + 16 * micro
        batch = range(first + rank, first + 16, world_size)
        with contextlib.nullcontext() if micro == ACCUMULATE - 1 else model.no_sync():
            loss = (model(inputs[batch]) - targets[batch]).square().mean()
            # RIGHT: loss = loss / ACCUMULATE
            loss.backward()  # <- here
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
