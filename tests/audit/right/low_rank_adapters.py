"""A frozen base with low-rank adapters: the base learns nothing, and the adapters' first factor gets a zero gradient in the first step, because the second begins at zero.

World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


class Adapted(nn.Module):
    """A linear layer that stays as it is, plus a product of two thin matrices that learns."""

    def __init__(self, base, size):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, size, bias=False)
        self.up = nn.Linear(size, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(Adapted(nn.Linear(8, 16), 2), nn.Tanh(), Adapted(nn.Linear(16, 1), 2)))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
