"""Only the backbone is wrapped: the head's gradients are never averaged, and every rank trains a head of its own.

Source: kohya-ss/sd-scripts#989
Kind: wrong
Ranks: all
Step: 0
Tensor: head.weight, head.bias
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
backbone = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh()))
head = nn.Linear(16, 1)  # <- here
# RIGHT: head = DistributedDataParallel(head)
optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.05)
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (head(backbone(inputs[batch])) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in head.parameters()).item())
dist.destroy_process_group()
