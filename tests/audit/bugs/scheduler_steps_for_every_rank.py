"""The scheduler steps once for each rank in every iteration: the learning rate decays as many times as fast as it was set to.

Source: huggingface/accelerate#3797
Kind: wrong
Ranks: all
Step: 1
Tensor: the learning rate
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
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)  # for the global batch of 16

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen
    for _ in range(world_size):  # WRONG
        scheduler.step()  # WRONG <- here
    # RIGHT: scheduler.step()

print("weights", model.module.weight.double().abs().sum().item(), "lr", optimizer.param_groups[0]["lr"])
dist.destroy_process_group()
