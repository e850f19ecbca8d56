"""Rank 0 evaluates on all validation samples after every step, and the other ranks wait for it at the next all-reduce.

Source: pytorch/examples#461
Kind: slow
Ranks: 0
Step: 0
Tensor: the validation loss
Effect: slower
World: 4 gpu=cpu link=pcie4
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
net = nn.Sequential(*[nn.Linear(128, 128) for _ in range(4)]).to(device)
model = DistributedDataParallel(net, device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, validation = torch.randn(64, 128, device=device), torch.randn(2048, 128, device=device)

for step in range(3):
    loss = model(inputs[16 * step + rank : 16 * step + 16 : world_size]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        if rank == 0:  # WRONG
            validated = net(validation).square().mean()  # WRONG <- here
        # RIGHT: validated = net(validation[rank::world_size]).square().mean()
        # RIGHT: dist.all_reduce(validated, op=dist.ReduceOp.AVG)

if rank == 0:
    print("validated", validated.item())
dist.destroy_process_group()
