"""A server adds up gradients in the order in which they come and answers when it has all: who is late changes the rounding and nothing else.

World: 4
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, num_workers = dist.get_rank(), dist.get_world_size() - 1
SERVER = 0

torch.manual_seed(0)
weights = torch.zeros(8)
inputs = torch.randn(48, 8)
targets = inputs.sum(1)

for step in range(4):
    if rank == SERVER:
        total = torch.zeros_like(weights)
        for _ in range(num_workers):
            gradient = torch.empty_like(weights)
            dist.recv(gradient)
            total += gradient
        weights -= 0.1 * total / num_workers
        for worker in range(1, num_workers + 1):
            dist.send(weights, worker)
    else:
        batch = range(12 * step + rank - 1, 12 * step + 12, num_workers)
        error = inputs[batch] @ weights - targets[batch]
        gradient = 2 * (error[:, None] * inputs[batch]).mean(0)
        dist.send(gradient, SERVER)
        dist.recv(weights, SERVER)

print("weights", weights.double().abs().sum().item())
dist.destroy_process_group()
