"""Buckets are filled in the order of the forward pass: the first is complete last, and no message can begin before backward ends.

Source: Li et al. 2020: PyTorch Distributed, Experiences on Accelerating Data Parallel Training, section 3.2.2
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
model = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(6)]).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(1536, 256, device=device)
order = list(model.parameters())  # WRONG <- here
# RIGHT: order = list(model.parameters())[::-1]
ready, under_way = set(), []


def send_what_is_next(parameter):
    ready.add(parameter)
    while len(under_way) < len(order) and order[len(under_way)] in ready:  # ranks must send in the same order
        next_one = order[len(under_way)]
        under_way.append(dist.all_reduce(next_one.grad, op=dist.ReduceOp.AVG, async_op=True))


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(send_what_is_next)

for step in range(3):
    loss = model(inputs[512 * step + rank : 512 * step + 512 : world_size]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for work in under_way:
        work.wait()
    ready.clear()
    under_way.clear()
    optimizer.step()

print("loss", loss.item())
dist.destroy_process_group()
