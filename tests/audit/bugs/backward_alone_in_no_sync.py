"""Only the backward passes are inside no_sync(): the forward pass has told DDP already, and every microbatch is averaged.

Source: facebookresearch/ClassyVision#706
Kind: slow
Ranks: all
Step: 1
Tensor: every gradient
Effect: slower
World: 4
"""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

MICROBATCHES = 4

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(256, 8)
targets = inputs.sum(1, keepdim=True)

for step in range(4):
    optimizer.zero_grad()
    for microbatch in range(MICROBATCHES):
        first = 64 * step + 16 * microbatch
        batch = range(first + rank, first + 16, world_size)
        with contextlib.ExitStack() as stack:
            # RIGHT: if microbatch < MICROBATCHES - 1:
            # RIGHT:     stack.enter_context(model.no_sync())
            loss = (model(inputs[batch]) - targets[batch]).square().mean() / MICROBATCHES  # <- here
            if microbatch < MICROBATCHES - 1:  # WRONG <- here
                stack.enter_context(model.no_sync())  # WRONG <- here
            loss.backward()  # <- seen
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
