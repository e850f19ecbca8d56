"""Samples are not shuffled and drop_last leaves out what does not fill a batch on all ranks: the same fifteen are read in no epoch.

Source: PyTorch documentation: torch.utils.data.distributed.DistributedSampler, drop_last
Kind: wrong
Ranks: all
Step: 2
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
inputs = torch.randn(63, 8)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
sampler = DistributedSampler(data, shuffle=False, drop_last=True)  # WRONG
# RIGHT: sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=4, sampler=sampler, drop_last=True)  # WRONG <- here
# RIGHT: loader = DataLoader(data, batch_size=4, sampler=sampler)

for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:  # <- seen
        loss = (model(x) - y).square().mean()  # <- seen
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
