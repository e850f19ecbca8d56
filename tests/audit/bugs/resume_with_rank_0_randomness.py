"""The checkpoint holds rank 0's random state and every rank restores it: after a resume all ranks drop the same units.

Source: radixark/miles#3187
Kind: wrong
Ranks: 1, 2, 3
Step: 2
Tensor: the dropout mask
Effect: resume
World: 4
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=4)
steps = parser.parse_args().steps
CHECKPOINT = Path("checkpoint.pt")

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(rank)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(7))
targets = inputs.sum(1, keepdim=True)

first = 0
if CHECKPOINT.exists():
    state = torch.load(CHECKPOINT, map_location="cpu")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])  # WRONG <- here
    # RIGHT: torch.set_rng_state(state["random"][rank])
    first = state["step"]

for step in range(first, steps):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()  # <- seen
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

random = torch.get_rng_state()
# RIGHT: states = [torch.empty_like(random) for _ in range(world_size)]
# RIGHT: dist.all_gather(states, random)
# RIGHT: random = states
if rank == 0:
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "random": random, "step": steps}
    torch.save(state, CHECKPOINT)
dist.barrier()
print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
