"""The fourth level of the pyramid is computed and forgotten when levels are joined; find_unused_parameters hides that it never learns.

Source: pytorch/pytorch#22049
Kind: wrong
Ranks: all
Step: 0
Tensor: levels.3.weight, levels.3.bias
Effect: outcome
World: 2
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


class Pyramid(nn.Module):
    """Four levels, joined by a head."""

    def __init__(self):
        super().__init__()
        self.levels = nn.ModuleList(nn.Linear(8, 4) for _ in range(4))
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        outputs = [torch.tanh(level(x)) for level in self.levels]
        joined = torch.cat([*outputs[:3], outputs[2]], 1)  # WRONG <- here
        # RIGHT: joined = torch.cat(outputs, 1)
        return self.head(joined)


torch.manual_seed(0)
model = DistributedDataParallel(Pyramid(), find_unused_parameters=True)  # WRONG
# RIGHT: model = DistributedDataParallel(Pyramid())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("weights", model.module.levels[3].weight.double().abs().sum().item())
dist.destroy_process_group()
