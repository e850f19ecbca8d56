"""The loader shuffles by itself, with no DistributedSampler: all ranks read the same samples, and most are read by nobody.

Source: PatrickHua/SimSiam#16
Kind: wrong
Ranks: all
Step: 0
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
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=16 // dist.get_world_size(), shuffle=True)  # WRONG <- here
# RIGHT: loader = DataLoader(data, batch_size=16 // dist.get_world_size(), sampler=sampler)

for epoch in range(2):
    sampler.set_epoch(epoch)
    for step, (x, y) in enumerate(loader):  # <- seen
        if step == 4:
            break
        loss = (model(x) - y).square().mean()  # <- seen
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

print("weights", [round(w, 6) for w in model.module.weight[0].tolist()])
dist.destroy_process_group()
