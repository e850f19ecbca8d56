"""DistributedSampler repeats samples so that all ranks have equally many, and the accuracy counts the repeated ones twice.

Source: pytorch/pytorch#25162
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
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 2))
inputs = torch.randn(64 + 21, 8)
data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
training, validation = Subset(data, range(64)), Subset(data, range(64, 85))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

for x, y in DataLoader(training, batch_size=4, sampler=DistributedSampler(training)):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

mine = DistributedSampler(validation, shuffle=False)  # WRONG <- here
# RIGHT: mine = range(rank, len(validation), world_size)
counts = torch.zeros(2)
with torch.no_grad():
    for x, y in DataLoader(validation, batch_size=4, sampler=mine):
        counts += torch.tensor([(model.module(x).argmax(1) == y).sum(), len(y)])
dist.all_reduce(counts)
print("accuracy", (counts[0] / counts[1]).item(), "of", int(counts[1]))
dist.destroy_process_group()
