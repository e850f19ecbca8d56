"""fully_shard is called on the model alone, not on its layers: one all-gather brings all parameters before the first layer runs, and holds them.

Source: PyTorch documentation: torch.distributed.fsdp.fully_shard, notes on calling it bottom-up
Kind: slow
Ranks: all
Step: 0
Tensor: every parameter
Effect: memory
World: 4
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group()
rank, world_size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cuda", (world_size,))

torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(8)]).to(device)
# RIGHT: for layer in model:
# RIGHT:     fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)  # <- here
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 256, device=device)

for step in range(4):
    loss = model(inputs[16 * step + rank : 16 * step + 16 : world_size]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("loss", loss.item())
dist.destroy_process_group()
