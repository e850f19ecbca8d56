"""Every rank computes the accuracy of its own samples and the ranks' accuracies are averaged, though the last rank has fewer samples.

Source: RUCAIBox/RecBole#1872
Kind: wrong
Ranks: all
Step: 3
Tensor: the accuracy
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 2))
inputs = torch.randn(64 + 27, 8)
targets = (inputs.sum(1) > 0).long()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

mine = range(64 + 8 * rank, min(64 + 8 * rank + 8, 91))  # 8, 8, 8 and 3 samples
with torch.no_grad():
    right = (model.module(inputs[mine]).argmax(1) == targets[mine]).sum()
accuracy = right / len(mine)  # WRONG
dist.all_reduce(accuracy)  # WRONG <- here
accuracy /= world_size  # WRONG
# RIGHT: counts = torch.tensor([right, len(mine)])
# RIGHT: dist.all_reduce(counts)
# RIGHT: accuracy = counts[0] / counts[1]
print("accuracy", round(accuracy.item(), 6))
dist.destroy_process_group()
