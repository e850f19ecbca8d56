"""Batch norm's running statistics are not shared (broadcast_buffers=False): every rank evaluates, and saves, another model.

Source: pytorch/pytorch#13711
Kind: wrong
Ranks: all
Step: 0
Tensor: running_mean, running_var
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
net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
model = DistributedDataParallel(net, broadcast_buffers=False)  # <- here
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

# RIGHT: for buffer in net.buffers():
# RIGHT:     dist.all_reduce(buffer)
# RIGHT:     buffer.copy_(buffer / world_size)
net.eval()
with torch.no_grad():
    print("loss", (net(inputs) - targets).square().mean().item())
dist.destroy_process_group()
