"""The flag that all ranks must agree on is read while its all-reduce is under way: a rank sees its own value.

Source: pytorch/pytorch#115710
Kind: wrong
Ranks: 0, 1, 3
Step: 1
Tensor: overflow
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = nn.Linear(8, 1)
inputs = torch.randn(64, 8)
inputs[18, 3] = 1e6  # a broken sample, on rank 2 in the second step
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
skipped = 0

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    overflow = (loss > 1e4).float()
    agreed = dist.all_reduce(overflow, op=dist.ReduceOp.MAX, async_op=True)
    # RIGHT: agreed.wait()
    skip = bool(overflow)  # <- here
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size
    agreed.wait()
    if skip:
        skipped += 1
        continue
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- seen

print("skipped", skipped, "weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
