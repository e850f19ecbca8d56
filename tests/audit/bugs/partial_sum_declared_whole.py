"""A rank's partial sum is made a DTensor that says it is whole: nothing adds the parts, and every rank goes on with its own.

Source: PyTorch documentation: torch.distributed.tensor.DTensor.from_local, placements and run_check
Kind: wrong
Ranks: all
Step: 0
Tensor: hidden
Effect: replicas
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate  # noqa: F401

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world_size,))

torch.manual_seed(0)
head = nn.Linear(8, 1)
up = nn.Parameter((torch.randn(32, 8) / 3).chunk(world_size, 0)[rank].clone())
down = nn.Parameter((torch.randn(8, 32) / 6).chunk(world_size, 1)[rank].clone())
optimizer = torch.optim.SGD([*head.parameters(), up, down], lr=0.1)
inputs = torch.randn(64, 8)

for step in range(4):
    x = inputs[16 * step : 16 * step + 16]
    hidden = torch.relu(x @ up.T) @ down.T
    hidden = DTensor.from_local(hidden, mesh, [Replicate()])  # WRONG <- here
    # RIGHT: hidden = DTensor.from_local(hidden, mesh, [Partial()])
    hidden = hidden.redistribute(placements=[Replicate()]).to_local()
    loss = (head(hidden)[:, 0] - x.sum(1)).square().mean()  # <- seen
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", head.weight.double().abs().sum().item())
dist.destroy_process_group()
