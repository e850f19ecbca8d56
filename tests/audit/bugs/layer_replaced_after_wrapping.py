"""The head is replaced by a new one after wrapping: DistributedDataParallel neither broadcasts nor averages what it has not seen.

Source: pytorch/pytorch#12603
Kind: wrong
Ranks: all
Step: -1
Tensor: head.weight, head.bias
Effect: replicas
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


class Classifier(nn.Module):
    """A backbone and a head that is made for the task."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(8, 16)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(torch.tanh(self.backbone(x)))


torch.manual_seed(rank)
net = Classifier()
# RIGHT: net.head = nn.Linear(16, 2)
model = DistributedDataParallel(net, find_unused_parameters=True)
net.head = nn.Linear(16, 2)  # WRONG <- here
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(7))
targets = (inputs.sum(1) > 0).long()

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in net.parameters()).item())
dist.destroy_process_group()
