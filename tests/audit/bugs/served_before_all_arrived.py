"""The server answers each worker when its own gradient has come, not when all have: workers of one step compute with different weights.

Source: PaddlePaddle/Paddle#7643
Kind: wrong
Ranks: 1, 2
Step: 0
Tensor: weights
Effect: replicas
World: 4
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, num_workers = dist.get_rank(), dist.get_world_size() - 1
SERVER = 0

torch.manual_seed(0)
weights = torch.zeros(8)
inputs = torch.randn(4 * 12, 8)
targets = inputs.sum(1)

for step in range(4):
    if rank == SERVER:
        for worker in range(1, num_workers + 1):
            gradient = torch.empty_like(weights)
            dist.recv(gradient, worker)
            weights -= 0.1 * gradient / num_workers
            dist.send(weights, worker)  # WRONG <- here
        # RIGHT: for worker in range(1, num_workers + 1):
        # RIGHT:     dist.send(weights, worker)
    else:
        batch = range(12 * step + rank - 1, 12 * step + 12, num_workers)
        error = inputs[batch] @ weights - targets[batch]
        gradient = 2 * (error[:, None] * inputs[batch]).mean(0)
        dist.send(gradient, SERVER)
        dist.recv(weights, SERVER)

print("weights", weights.double().abs().sum().item())
dist.destroy_process_group()
