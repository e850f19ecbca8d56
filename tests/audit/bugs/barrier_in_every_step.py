"""A barrier stands at the end of every step, to be safe: ranks meet there, and the host may not run ahead of its device.

Source: PyTorch documentation: torch.distributed.barrier, which blocks until the whole group enters
Kind: slow
Ranks: all
Step: 0
Tensor: -
Effect: slower
World: 4
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
model = nn.Sequential(*[nn.Linear(128, 128) for _ in range(8)]).to(device)
model = DistributedDataParallel(model, device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 128, device=device)

for step in range(4):
    loss = model(inputs[16 * step + rank : 16 * step + 16 : world_size]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.barrier()  # WRONG <- here

print("loss", loss.item())
dist.destroy_process_group()
