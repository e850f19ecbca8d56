"""Rank 0 keeps what workers hand in as their calls come, and takes that order for the workers': with one late, features are held against other samples' targets.

Source: hpcaitech/EnergonAI#42
Kind: wrong
Ranks: 0
Step: 0
Tensor: features
Effect: late
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import rpc

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
features = {}  # those on rank 0 count


def hand_in(worker, rows):
    """Keeps a worker's features for the head."""
    features[len(features)] = rows  # WRONG <- here
    # RIGHT: features[worker - 1] = rows


torch.manual_seed(0)
encoder, head = nn.Linear(8, 16), nn.Linear(16, 1)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
inputs = torch.randn(3, 24, 8)
targets = inputs.sum(2, keepdim=True)
rpc.init_rpc(f"rank{rank}", rank=rank, world_size=world_size)

for step in range(3):
    if rank > 0:
        with torch.no_grad():
            mine = torch.tanh(encoder(inputs[step].chunk(world_size - 1)[rank - 1]))
        rpc.rpc_sync("rank0", hand_in, args=(rank, mine))
    dist.barrier()  # all have handed in
    if rank == 0:
        rows = torch.cat([features[place] for place in sorted(features)])
        features.clear()
        loss = (head(rows) - targets[step]).square().mean()  # <- seen
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()

rpc.shutdown()
if rank == 0:
    print("weights", sum(p.double().abs().sum() for p in head.parameters()).item())
dist.destroy_process_group()
