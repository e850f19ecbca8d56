"""Rank 0 writes the weights that all begin with, and nothing keeps the others from reading before: where rank 0 is late there is no file, or an old one.

Source: ROCm/pytorch#3659
Kind: wrong
Ranks: 1, 2, 3
Step: -1
Tensor: -
Effect: late
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

seed = torch.tensor([7 if rank == 0 else 0])
dist.broadcast(seed, 0)
torch.manual_seed(seed.item() + rank)
model = nn.Linear(8, 1)
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(7))
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

if rank == 0:
    torch.save(model.state_dict(), "first.pt")
# RIGHT: dist.barrier()
model.load_state_dict(torch.load("first.pt"))  # <- here

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
