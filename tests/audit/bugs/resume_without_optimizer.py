"""The checkpoint holds the model alone: after a resume Adam begins with empty moments.

Source: EvolvingLMMs-Lab/OneVision-Encoder#65
Kind: wrong
Ranks: all
Step: 2
Tensor: the optimizer's exp_avg and exp_avg_sq
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
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

first = 0
if CHECKPOINT.exists():
    state = torch.load(CHECKPOINT, map_location="cpu")
    model.module.load_state_dict(state["model"])  # <- here
    # RIGHT: optimizer.load_state_dict(state["optimizer"])
    first = state["step"]

for step in range(first, steps):
    batch = range(16 * (step % 4) + rank, 16 * (step % 4) + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen
    if (step + 1) % 2 == 0 and rank == 0:
        state = {"model": model.module.state_dict(), "step": step + 1}
        # RIGHT: state["optimizer"] = optimizer.state_dict()
        torch.save(state, CHECKPOINT)

dist.barrier()
print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
