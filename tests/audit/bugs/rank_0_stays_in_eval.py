"""Rank 0 evaluates now and then and forgets to call train(): it goes on without dropout, and the others with it.

Source: shubhamagarwal92/mmd#14
Kind: wrong
Ranks: 0
Step: 2
Tensor: the activations after dropout
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
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Dropout(0.5), nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
inputs = torch.randn(128, 8)
targets = inputs.sum(1, keepdim=True)
torch.manual_seed(100 + rank)

for step in range(6):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()  # <- seen
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2 == 1 and rank == 0:
        model.eval()  # <- here
        with torch.no_grad():
            print("error", (model.module(inputs[96:]) - targets[96:]).square().mean().item())
        # RIGHT: model.train()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
