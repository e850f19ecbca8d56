"""The batch goes from rank 0 to the others with broadcast_object_list in every step: pickled, over the host, in two broadcasts.

Source: vllm-project/vllm#4440
Kind: slow
Ranks: all
Step: 0
Tensor: the batch
Effect: slower
World: 4
"""

import os

import torch
import torch.distributed as dist
from torch import nn

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group()
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = nn.Linear(256, 256).to(device)  # a tensor-parallel group reads the same batch
inputs = torch.randn(64, 256, device=device)

for step in range(8):
    batch = inputs[8 * step : 8 * step + 8] if rank == 0 else torch.empty(8, 256, device=device)
    objects = [batch.cpu() if rank == 0 else None]  # WRONG
    dist.broadcast_object_list(objects, src=0)  # WRONG <- here
    batch = objects[0].to(device)  # WRONG
    # RIGHT: dist.broadcast(batch, src=0)
    output = model(batch)

print("output", output.square().mean().item())
dist.destroy_process_group()
