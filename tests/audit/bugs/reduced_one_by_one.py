"""Every gradient is all-reduced by itself, after backward: 32 messages, each of which pays the latency, where one bucket would do.

Source: facebookresearch/fairscale#122
Kind: slow
Ranks: all
Step: 0
Tensor: every gradient
Effect: slower
World: 4
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
model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(16)]).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 32).to(device)

for step in range(4):
    loss = model(inputs[16 * step + rank : 16 * step + 16 : world_size]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    for gradient in gradients:  # WRONG
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)  # WRONG <- here
    # RIGHT: bucket = torch.cat([gradient.flatten() for gradient in gradients])
    # RIGHT: dist.all_reduce(bucket, op=dist.ReduceOp.AVG)
    # RIGHT: for gradient, part in zip(gradients, bucket.split([g.numel() for g in gradients]), strict=True):
    # RIGHT:     gradient.copy_(part.view_as(gradient))
    optimizer.step()

print("loss", loss.item())
dist.destroy_process_group()
