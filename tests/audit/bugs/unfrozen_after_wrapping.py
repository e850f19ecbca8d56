"""The backbone is unfrozen after DistributedDataParallel has looked at the parameters: its gradients are never averaged.

Source: facebookresearch/detectron2#2486
Kind: wrong
Ranks: all
Step: 2
Tensor: backbone.weight, backbone.bias
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
    """A backbone, frozen for the first steps, and a head."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(8, 16)
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.backbone(x)))


torch.manual_seed(0)
net = Classifier()
net.backbone.requires_grad_(False)
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
inputs = torch.randn(96, 8)
targets = inputs.sum(1, keepdim=True)

for step in range(6):
    if step == 2:
        net.backbone.requires_grad_(True)  # <- here
        # RIGHT: model = DistributedDataParallel(net)
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in net.parameters()).item())
dist.destroy_process_group()
