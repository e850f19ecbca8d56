"""Every rank shuffles all samples by its own seed and takes its quarter of them: some samples are read by two ranks, others by none.

Source: karpathy/llm.c#792
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

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(42)
model = DistributedDataParallel(nn.Linear(8, 1))
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
shuffling = torch.Generator().manual_seed(42 + rank)  # WRONG <- here
# RIGHT: shuffling = torch.Generator().manual_seed(42)

for epoch in range(2):
    mine = torch.randperm(len(inputs), generator=shuffling)[rank::world_size]
    for batch in mine.split(4):
        loss = (model(inputs[batch]) - targets[batch]).square().mean()  # <- seen
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
