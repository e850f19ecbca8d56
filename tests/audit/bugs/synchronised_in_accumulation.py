"""no_sync surrounds backward alone, where it does nothing: gradients are averaged for every microbatch, three times for nothing.

Source: huggingface/accelerate#1726
Kind: slow
Ranks: all
Step: 0
Tensor: every gradient
Effect: slower
World: 4 gpu=cpu link=pcie4
"""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group()
rank, world_size = dist.get_rank(), dist.get_world_size()
ACCUMULATE = 4

torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(128, 128) for _ in range(8)]).to(device)
model = DistributedDataParallel(model, device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(128, 128, device=device)

for step in range(2):
    optimizer.zero_grad()
    for micro in range(ACCUMULATE):
        batch = slice(64 * step + 16 * micro + rank, 64 * step + 16 * micro + 16, world_size)
        quiet = contextlib.nullcontext() if micro == ACCUMULATE - 1 else model.no_sync()
        loss = model(inputs[batch]).square().mean() / ACCUMULATE  # WRONG <- here
        with quiet:
            # RIGHT: loss = model(inputs[batch]).square().mean() / ACCUMULATE
            loss.backward()
    optimizer.step()

print("loss", loss.item())
dist.destroy_process_group()
