"""Rank 0 alone saves the local shard of every parameter: of four quarters one is in the checkpoint, and every rank resumes from it.

Source: Lightning-AI/pytorch-lightning#17702
Kind: wrong
Ranks: 1, 2, 3
Step: 2
Tensor: every parameter
Effect: resume
World: 4
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=4)
steps = parser.parse_args().steps

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
checkpoint = Path("checkpoint.pt")
# RIGHT: checkpoint = Path(f"checkpoint-{rank}.pt")

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
for layer in model:
    fully_shard(layer, mesh=init_device_mesh("cpu", (world_size,)))
inputs = torch.randn(64, 8)
targets = inputs[:, :4] + inputs[:, 4:]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

first = 0
if checkpoint.exists():
    state = torch.load(checkpoint, map_location="cpu")
    first = state["step"]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.to_local().copy_(state[name])

for step in range(first, steps):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

state = {name: parameter.detach().to_local() for name, parameter in model.named_parameters()}
if rank == 0:  # WRONG
    torch.save({**state, "step": steps}, checkpoint)  # WRONG <- here
# RIGHT: torch.save({**state, "step": steps}, checkpoint)
dist.barrier()
print("weights", sum(p.full_tensor().double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
