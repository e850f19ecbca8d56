"""The norm of every gradient is read with .item() in every step, for a log line: each time the host waits for the device, and has nothing issued when it goes on.

Source: meta-pytorch/torchtune#522
Kind: slow
Ranks: all
Step: 0
Tensor: the norms of the gradients
Effect: slower
World: 2 gpu=cpu link=pcie4
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group()
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).to(device)
model = DistributedDataParallel(model, device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(256, 256, device=device)
norms = []

for step in range(8):
    loss = model(inputs[32 * step + rank : 32 * step + 32 : world_size]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        norms.append(parameter.grad.norm().item())  # WRONG <- here
        # RIGHT: norms.append(parameter.grad.norm())
    optimizer.step()

print("mean norm", sum(float(norm) for norm in norms) / len(norms))
dist.destroy_process_group()
