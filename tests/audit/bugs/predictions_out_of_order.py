"""DistributedSampler deals samples out in turn; the ranks' predictions are joined rank by rank, and held against the labels of other samples.

Source: open-mmlab/mmpretrain#173
Kind: wrong
Ranks: all
Step: -1
Tensor: predictions
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
inputs = torch.randn(96, 8)
labels = inputs[:, :4].argmax(1)
held_out = TensorDataset(inputs[64:], labels[64:])
loader = DataLoader(held_out, 4, sampler=DistributedSampler(held_out, shuffle=False))

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

model.eval()
with torch.no_grad():
    mine = torch.cat([model(x).argmax(1) for x, _ in loader])
parts = [torch.empty_like(mine) for _ in range(world_size)]
dist.all_gather(parts, mine)
predictions = torch.cat(parts)  # WRONG <- here
# RIGHT: predictions = torch.stack(parts, 1).flatten()
right = (predictions == labels[64:]).sum().item()  # <- seen
print("right", right, "of", len(held_out))
dist.destroy_process_group()
