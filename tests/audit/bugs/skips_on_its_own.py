"""A rank skips a bad batch on its own, and with it its all-reduces: the next ones match, but average gradients of different steps.

Source: NVIDIA-NeMo/Automodel#2468
Kind: wrong
Ranks: all
Step: 1
Tensor: every gradient
Effect: outcome
World: 2
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = nn.Linear(8, 1)
inputs = torch.randn(96, 8)
inputs[16 + 0] = float("nan")  # rank 0, step 2
inputs[64 + 1] = float("nan")  # rank 1, step 5
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(6):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    bad = loss.isnan().float()
    # RIGHT: dist.all_reduce(bad)
    if bad > 0:  # <- here
        continue
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
