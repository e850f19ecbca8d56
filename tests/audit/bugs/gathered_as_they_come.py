"""Rank 0 receives the ranks' predictions from whoever sends first and takes the order for that of ranks: with one rank late they are held against other samples' targets.

Source: determined-ai/determined#3405
Kind: wrong
Ranks: 0
Step: -1
Tensor: predictions
Effect: late
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = nn.Linear(8, 1)
inputs = torch.randn(32, 8)
targets = inputs.sum(1, keepdim=True)

with torch.no_grad():
    mine = model(inputs.chunk(world_size)[rank])
    if rank == 0:
        predictions = [mine] + [None] * (world_size - 1)
        for place in range(1, world_size):
            received = torch.empty_like(mine)
            dist.recv(received)  # WRONG <- here
            predictions[place] = received  # WRONG
            # RIGHT: source = dist.recv(received)
            # RIGHT: predictions[source] = received
        loss = (torch.cat(predictions) - targets).square().mean()
    else:
        dist.send(mine, 0)
        loss = torch.empty(())
    dist.broadcast(loss, 0)

print("loss", loss.item())
dist.destroy_process_group()
