"""Workers read the weights, update them at home and write them back: what others wrote in between is lost.

Source: sql-machine-learning/elasticdl#1125
Kind: wrong
Ranks: 0
Step: 0
Tensor: weights
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch.distributed import rpc

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
weights = torch.zeros(8)  # those on rank 0 count


def read():
    return weights.clone()


def write(new):
    weights.copy_(new)


def subtract(update):
    weights.sub_(update)


torch.manual_seed(0)
inputs = torch.randn(48, 8)
targets = inputs.sum(1)
rpc.init_rpc(f"rank{rank}", rank=rank, world_size=world_size)
if rank > 0:
    for step in range(4):
        current = rpc.rpc_sync("rank0", read)
        batch = range(12 * step + rank - 1, 12 * step + 12, world_size - 1)
        error = inputs[batch] @ current - targets[batch]
        update = 0.05 * 2 * (error[:, None] * inputs[batch]).mean(0)
        rpc.rpc_sync("rank0", write, args=(current - update,))  # WRONG <- here
        # RIGHT: rpc.rpc_sync("rank0", subtract, args=(update,))
rpc.shutdown()

if rank == 0:
    print("weights", weights.double().abs().sum().item())
dist.destroy_process_group()
