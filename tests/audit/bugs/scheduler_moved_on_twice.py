"""A resume restores the learning-rate scheduler and then steps it once for each step of the past: it stands twice as far as it should.

Source: THUDM/slime#1547
Kind: wrong
Ranks: all
Step: 2
Tensor: the learning rate
Effect: resume
World: 2
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

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

first = 0
if CHECKPOINT.exists():
    state = torch.load(CHECKPOINT, map_location="cpu")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    first = state["step"]
    for _ in range(first):  # WRONG
        scheduler.step()  # WRONG <- here

for step in range(first, steps):
    batch = range(16 * (step % 4) + rank, 16 * (step % 4) + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen
    scheduler.step()
    if (step + 1) % 2 == 0 and rank == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
        state["scheduler"] = scheduler.state_dict()
        torch.save(state, CHECKPOINT)

dist.barrier()
print("weights", sum(p.double().abs().sum() for p in model.parameters()).item(), optimizer.param_groups[0]["lr"])
dist.destroy_process_group()
