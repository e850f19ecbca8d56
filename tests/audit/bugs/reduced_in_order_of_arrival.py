"""Gradients are all-reduced as hooks see them, and the order depends on what the rank computed: the two encoders' gradients are averaged with each other.

Source: Li et al. 2020: PyTorch Distributed, Experiences on Accelerating Data Parallel Training, section 3.2.3
Kind: wrong
Ranks: all
Step: 0
Tensor: image.weight, text.weight
Effect: replicas
World: 2
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = nn.ModuleDict({"image": nn.Linear(8, 1, bias=False), "text": nn.Linear(8, 1, bias=False)})
inputs = torch.randn(2, 64, 8)
targets = inputs.sum(2, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def average(parameter):
    dist.all_reduce(parameter.grad)
    parameter.grad /= world_size


for parameter in model.parameters():  # WRONG
    parameter.register_post_accumulate_grad_hook(average)  # WRONG <- here

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    optimizer.zero_grad()
    for kind in ("image", "text") if rank == 0 else ("text", "image"):  # as the samples of the batch come
        rows = 0 if kind == "image" else 1
        loss = (model[kind](inputs[rows][batch]) - targets[rows][batch]).square().mean()
        loss.backward()
    # RIGHT: for parameter in model.parameters():
    # RIGHT:     average(parameter)
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
