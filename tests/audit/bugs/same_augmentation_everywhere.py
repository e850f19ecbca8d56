"""Every rank seeds numpy with the same number: sample i of each batch is augmented alike on all ranks.

Source: huggingface/pytorch-image-models#1519
Kind: wrong
Ranks: all
Step: 0
Tensor: the batch
Effect: outcome
World: 4
"""

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


class Augmented(Dataset):
    """Rows, each with noise of its own."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        noise = torch.from_numpy(np.random.randn(8)).float()  # <- here
        return row + 0.5 * noise, row.sum()


torch.manual_seed(42)
np.random.seed(42)  # WRONG
# RIGHT: np.random.seed(42 + rank)
data = Augmented(torch.randn(64, 8))
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(data, batch_size=16 // world_size, sampler=DistributedSampler(data, shuffle=False))

for x, y in loader:  # <- seen
    loss = (model(x)[:, 0] - y).square().mean()  # <- seen
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
