"""The list that all_gather fills holds one tensor four times: every entry is what the last rank sent.

Source: Lightning-AI/pytorch-lightning#3253
Kind: wrong
Ranks: all
Step: 0
Tensor: gathered
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
model = DistributedDataParallel(nn.Linear(8, 1))
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    predicted = model(inputs[batch])
    gathered = [torch.zeros_like(predicted)] * world_size  # WRONG <- here
    # RIGHT: gathered = [torch.zeros_like(predicted) for _ in range(world_size)]
    dist.all_gather(gathered, predicted.detach())
    centre = torch.cat(gathered).mean()  # of all ranks' predictions
    loss = (predicted - targets[batch]).square().mean() + 0.1 * (centre * predicted).mean()  # <- seen
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
