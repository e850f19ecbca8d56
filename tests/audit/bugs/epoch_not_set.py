"""set_epoch is not called: every epoch repeats the first one's order, the same samples on the same rank.

Source: pytorch/pytorch#31771
Kind: wrong
Ranks: all
Step: 4
Tensor: the batch
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

torch.manual_seed(0)
inputs = torch.randn(64, 8)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
sampler = DistributedSampler(data, shuffle=True, seed=3)
loader = DataLoader(data, batch_size=16 // dist.get_world_size(), sampler=sampler)

for epoch in range(3):
    # RIGHT: sampler.set_epoch(epoch)
    for x, y in loader:  # <- here
        loss = (model(x) - y).square().mean()  # <- seen
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

print("weights", [round(w, 6) for w in model.module.weight[0].tolist()])
dist.destroy_process_group()
