"""Top-k compression keeps what it did not send under the bucket's tensor, which is another in every step: the residual is never found again.

Source: pytorch/pytorch#48670
Kind: wrong
Ranks: all
Step: 1
Tensor: the residual
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
residuals = {}
SENT = 16


def send_largest(group, bucket):
    """Averages the largest entries of a bucket and keeps the rest for the next step."""
    gradient = bucket.buffer().clone()
    key = bucket.buffer()  # WRONG <- here
    # RIGHT: key = bucket.index()
    gradient += residuals.get(key, torch.zeros_like(gradient))
    largest = gradient.abs().topk(SENT).indices
    sent = torch.zeros_like(gradient)
    sent[largest] = gradient[largest]
    residuals[key] = gradient - sent
    work = dist.all_reduce(sent / world_size, group=group, async_op=True)
    return work.get_future().then(lambda done: bucket.buffer().copy_(done.value()[0]))


torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)))
model.register_comm_hook(dist.group.WORLD, send_largest)
inputs = torch.randn(96, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for step in range(6):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
