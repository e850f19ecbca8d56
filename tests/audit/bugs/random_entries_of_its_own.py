"""Random-k compression draws other entries on each rank and adds up what stands there: gradients of different weights are averaged.

Source: pytorch/pytorch#48060
Kind: wrong
Ranks: all
Step: 0
Tensor: every gradient
Effect: replicas
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

SENT = 32

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
drawing = torch.Generator().manual_seed(rank)  # WRONG <- here
# RIGHT: drawing = torch.Generator().manual_seed(0)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    entries = torch.randperm(len(gradient), generator=drawing)[:SENT]
    values = gradient[entries]
    dist.all_reduce(values, op=dist.ReduceOp.AVG)  # <- seen
    gradient.zero_()[entries] = values
    for p, part in zip(model.parameters(), gradient.split([p.numel() for p in model.parameters()]), strict=True):
        p.grad.copy_(part.view_as(p))
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
