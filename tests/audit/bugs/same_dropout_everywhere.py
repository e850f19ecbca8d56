"""All data-parallel ranks have the same seed when training begins: they drop the same units, and the average over ranks averages less.

Source: huggingface/transformers#31412
Kind: wrong
Ranks: all
Step: 0
Tensor: the dropout mask
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(40)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 1)))
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
# RIGHT: torch.manual_seed(40 + rank)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()  # <- here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
