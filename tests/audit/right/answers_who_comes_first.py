"""An asynchronous parameter server in messages: it takes a gradient from whoever sends, and answers that worker at once with the weights as they are.

World: 4
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, num_workers = dist.get_rank(), dist.get_world_size() - 1
SERVER, STEPS = 0, 4

torch.manual_seed(0)
weights = torch.zeros(8)
inputs = torch.randn(48, 8)
targets = inputs.sum(1)

if rank == SERVER:
    for _ in range(STEPS * num_workers):
        gradient = torch.empty_like(weights)
        worker = dist.recv(gradient)
        weights -= 0.02 * gradient
        dist.send(weights, worker)
else:
    for step in range(STEPS):
        batch = range(12 * step + rank - 1, 12 * step + 12, num_workers)
        error = inputs[batch] @ weights - targets[batch]
        dist.send(2 * (error[:, None] * inputs[batch]).mean(0), SERVER)
        dist.recv(weights, SERVER)

if rank == SERVER:
    print("loss", (inputs @ weights - targets).square().mean().item())
dist.destroy_process_group()
