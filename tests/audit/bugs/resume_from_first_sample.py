"""The checkpoint does not say how far the loader was: a resume in the middle of an epoch reads its first samples again.

Source: KempnerInstitute/KempnerForge#51
Kind: wrong
Ranks: all
Step: 2
Tensor: the batch
Effect: resume
World: 2
"""

import argparse
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=4)
steps = parser.parse_args().steps
CHECKPOINT = Path("checkpoint.pt")

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
inputs = torch.randn(64, 8)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=16 // world_size, sampler=sampler)

step = 0
if CHECKPOINT.exists():
    state = torch.load(CHECKPOINT, map_location="cpu")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]

while step < steps:
    sampler.set_epoch(step // len(loader))
    read = 0  # WRONG
    # RIGHT: read = step % len(loader)
    for x, y in islice(loader, read, None):  # <- here
        if step == steps:
            break
        loss = (model(x) - y).square().mean()  # <- seen
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1

if rank == 0:
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, CHECKPOINT)
dist.barrier()
print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
