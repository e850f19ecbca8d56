"""The sampler is given the rank within the node: ranks with the same place on two nodes read the same samples, and half of the data is read by nobody.

Source: vllm-project/speculators#427
Kind: wrong
Ranks: 2, 3
Step: 0
Tensor: the batch
Effect: outcome
World: 4 gpus_per_node=2
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

local_rank = int(os.environ["LOCAL_RANK"])
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
data = TensorDataset(inputs, targets)
sampler = DistributedSampler(data, num_replicas=world_size, rank=local_rank)  # WRONG <- here
# RIGHT: sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
loader = DataLoader(data, batch_size=4, sampler=sampler)

for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
