"""ReduceLROnPlateau is given the rank's own validation loss: ranks halve their learning rates at different times and drift apart.

Source: rmchurch/disruptcnn#3
Kind: wrong
Ranks: 1
Step: 2
Tensor: the learning rate
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
model = DistributedDataParallel(nn.Linear(8, 1))
inputs = torch.randn(128, 8)
targets = inputs.sum(1, keepdim=True) + torch.randn(128, 1)
validation = range(64 + rank, 128, world_size)
optimizer = torch.optim.SGD(model.parameters(), lr=0.6)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)

for step in range(6):
    batch = range(16 * (step % 4) + rank, 16 * (step % 4) + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen
    with torch.no_grad():
        validated = (model.module(inputs[validation]) - targets[validation]).square().mean()
    # RIGHT: dist.all_reduce(validated)
    # RIGHT: validated /= world_size
    scheduler.step(validated)  # <- here

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item(), optimizer.param_groups[0]["lr"])
dist.destroy_process_group()
