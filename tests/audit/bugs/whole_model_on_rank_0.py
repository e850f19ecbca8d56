"""For a copy to save, rank 0 keeps every whole parameter on its device, where the others hold their shards: it needs the most memory of all.

Source: intelligent-machine-learning/dlrover#840
Kind: slow
Ranks: 0
Step: 1
Tensor: whole
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
model = nn.Sequential(*[nn.Linear(128, 128) for _ in range(8)]).to(device)
for layer in model:
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 128, device=device)
whole = {}

for step in range(4):
    loss = model(inputs[16 * step + rank : 16 * step + 16 : world_size]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        gathered = parameter.detach().full_tensor()
        if rank == 0:
            whole[name] = gathered  # WRONG <- here
            # RIGHT: whole[name] = gathered.cpu()

print("loss", loss.item())
dist.destroy_process_group()
