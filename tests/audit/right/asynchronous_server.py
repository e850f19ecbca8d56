"""An asynchronous parameter server: workers compute with weights of different ages, and the server applies each gradient as it comes.

World: 4
"""

import torch
import torch.distributed as dist
from torch.distributed import rpc

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
weights = torch.zeros(8)  # those on rank 0 count


def subtract(update):
    weights.sub_(update)
    return weights.clone()


torch.manual_seed(0)
inputs = torch.randn(48, 8)
targets = inputs.sum(1)
rpc.init_rpc(f"rank{rank}", rank=rank, world_size=world_size)
if rank > 0:
    current = torch.zeros(8)
    for step in range(4):
        batch = range(12 * step + rank - 1, 12 * step + 12, world_size - 1)
        error = inputs[batch] @ current - targets[batch]
        update = 0.05 * 2 * (error[:, None] * inputs[batch]).mean(0)
        current = rpc.rpc_sync("rank0", subtract, args=(update,))
rpc.shutdown()

if rank == 0:
    print("loss", (inputs @ weights - targets).square().mean().item())
dist.destroy_process_group()
