"""Every rank takes three steps of its own before weights are averaged, as in local SGD and DiLoCo: replicas differ in between, and may.

World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
LOCAL_STEPS = 3

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
inputs = torch.randn(96, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
outer = [p.detach().clone() for p in model.parameters()]
outer_optimizer = torch.optim.SGD(outer, lr=0.7, momentum=0.9, nesterov=True)

for step in range(6):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if (step + 1) % LOCAL_STEPS == 0:
        for before, after in zip(outer, model.parameters(), strict=True):
            before.grad = before - after.detach()
            dist.all_reduce(before.grad)
            before.grad /= world_size
        outer_optimizer.step()
        for before, after in zip(outer, model.parameters(), strict=True):
            after.data.copy_(before)

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
