"""The moving average of the weights is not in the checkpoint: after a resume it begins anew from the weights.

Source: ai2cm/ace#349
Kind: wrong
Ranks: all
Step: 2
Tensor: the average
Effect: resume
World: 2
"""

import argparse
import copy
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

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
average = copy.deepcopy(model.module)

first = 0
if CHECKPOINT.exists():
    state = torch.load(CHECKPOINT, map_location="cpu")
    model.module.load_state_dict(state["model"])  # <- here
    optimizer.load_state_dict(state["optimizer"])
    average.load_state_dict(state["model"])  # WRONG <- here
    # RIGHT: average.load_state_dict(state["average"])
    first = state["step"]

for step in range(first, steps):
    batch = range(16 * (step % 4) + rank, 16 * (step % 4) + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for kept, p in zip(average.parameters(), model.parameters(), strict=True):
            kept.lerp_(p, 0.1)
    if (step + 1) % 2 == 0 and rank == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}  # <- here
        # RIGHT: state["average"] = average.state_dict()
        torch.save(state, CHECKPOINT)  # <- here

dist.barrier()

print("weights", sum(p.double().abs().sum() for p in average.parameters()).item())
dist.destroy_process_group()
