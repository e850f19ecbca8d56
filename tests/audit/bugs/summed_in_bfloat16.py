"""Gradients of eight ranks are added in bfloat16, which keeps eight bits: small contributions are rounded away at every addition.

Source: NVIDIA/nccl#1026
Kind: wrong
Ranks: all
Step: 0
Tensor: every gradient
Effect: outcome
World: 8
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


def reduce_in_half_the_bytes(group, bucket):
    """Averages a bucket; the gradients come back in float32."""
    wire = bucket.buffer().to(torch.bfloat16)  # WRONG <- here
    # RIGHT: wire = bucket.buffer()
    work = dist.all_reduce(wire / world_size, group=group, async_op=True)
    return work.get_future().then(lambda done: bucket.buffer().copy_(done.value()[0]))


torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)))
model.register_comm_hook(dist.group.WORLD, reduce_in_half_the_bytes)
inputs = torch.randn(128, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(4):
    batch = range(32 * step + rank, 32 * step + 32, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
