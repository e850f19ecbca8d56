"""A distributed checkpoint holds the sharded model and optimizer, and the resume loads the model alone.

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
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=4)
steps = parser.parse_args().steps
CHECKPOINT = Path("checkpoint")

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
inputs = torch.randn(64, 8)
targets = inputs[:, :4] + inputs[:, 4:]

first = 0
if CHECKPOINT.exists():
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "step": torch.tensor(0)}  # WRONG <- here
    # RIGHT: state = {"model": weights, "optimizer": moments, "step": torch.tensor(0)}
    dcp.load(state, checkpoint_id=CHECKPOINT)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    first = int(state["step"])

for step in range(first, steps):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

weights, moments = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optimizer": moments, "step": torch.tensor(steps)}, checkpoint_id=CHECKPOINT)
print("weights", sum(p.full_tensor().double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
