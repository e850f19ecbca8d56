"""Tensor, pipeline and data parallelism at once, by hand; every module reads one manager of groups."""

import argparse
import json
import os

import groups
import torch
import torch.distributed as dist
import torch.nn as nn
from layers import ParallelMLP

parser = argparse.ArgumentParser()
for name in ("tp", "pp", "dp"):
    parser.add_argument(f"--{name}", type=int, default=2)
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()

if torch.cuda.is_available():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=device)
else:
    device = torch.device("cpu")
    dist.init_process_group("gloo")
groups.setup(args.tp, args.pp, args.dp)
manager = groups.manager

WIDTH, LAYERS, MICROBATCHES, ROWS = 16, 4, 4, 8
layers = []
for number in range(LAYERS):
    generator = torch.Generator().manual_seed(number)
    layer = ParallelMLP(WIDTH, 32, generator)
    if number * args.pp // LAYERS == manager.pp_rank:
        layers.append(layer)
stage = nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(stage.parameters(), lr=0.05)
losses = []
for step in range(args.steps):
    generator = torch.Generator().manual_seed(100 * step + manager.dp_rank)
    inputs = torch.randn(MICROBATCHES, ROWS, WIDTH, generator=generator).to(device)
    targets = inputs.flip(-1)
    kept, total = [], 0.0
    for number in range(MICROBATCHES):
        if manager.previous is None:
            x = inputs[number]
        else:
            x = torch.empty(ROWS, WIDTH, device=device)
            dist.recv(x, manager.previous)
            x.requires_grad_()
        y = stage(x)
        if manager.next is None:
            y = nn.functional.mse_loss(y, targets[number]) / MICROBATCHES
            total += y.item()
        else:
            dist.send(y.detach(), manager.next)
        kept.append((x, y))
    for x, y in kept:
        if manager.next is None:
            y.backward()
        else:
            grad = torch.empty_like(y)
            dist.recv(grad, manager.next)
            y.backward(grad)
        if manager.previous is not None:
            dist.send(x.grad, manager.previous)
    for p in stage.parameters():
        dist.all_reduce(p.grad, group=manager.dp_group)
        p.grad /= manager.dp_size
    optimizer.step()
    optimizer.zero_grad()
    losses.append(total)
weights = float(sum(p.detach().double().abs().sum() for p in stage.parameters()))
place = [manager.tp_rank, manager.pp_rank, manager.dp_rank]
print("RESULT " + json.dumps({"losses": losses, "weights": weights, "place": place}))
dist.destroy_process_group()
