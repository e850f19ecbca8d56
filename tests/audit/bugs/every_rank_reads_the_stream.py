"""An IterableDataset is not divided by rank: all ranks read the same stream, and train on the same samples.

Source: huggingface/datasets#5360
Kind: wrong
Ranks: all
Step: 0
Tensor: the batch
Effect: outcome
World: 4
"""

from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


class Stream(IterableDataset):
    """Samples in the order in which they were written."""

    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        return iter(self.samples)  # WRONG <- here
        # RIGHT: return islice(iter(self.samples), rank, None, world_size)


torch.manual_seed(0)
samples = [(x, x.sum()) for x in torch.randn(64, 8)]
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(Stream(samples), batch_size=16 // world_size)

for x, y in islice(loader, 4):  # <- seen
    loss = (model(x)[:, 0] - y).square().mean()  # <- seen
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
