"""Hooks begin an all-reduce as soon as a gradient is there, and wait for it at once: backward stands still while it travels.

Source: Li et al. 2020: PyTorch Distributed, Experiences on Accelerating Data Parallel Training, section 3.2.3
Kind: slow
Ranks: all
Step: 0
Tensor: every gradient
Effect: slower
World: 2 gpu=cpu link=pcie4
"""

import os

import torch
import torch.distributed as dist
from torch import nn

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group()
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(6)]).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(1536, 256, device=device)
under_way = []


def average(parameter):
    work = dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, async_op=True)
    work.wait()  # WRONG <- here
    # RIGHT: under_way.append(work)


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(average)

for step in range(3):
    loss = model(inputs[512 * step + rank : 512 * step + 512 : world_size]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for work in under_way:
        work.wait()
    under_way.clear()
    optimizer.step()

print("loss", loss.item())
dist.destroy_process_group()
