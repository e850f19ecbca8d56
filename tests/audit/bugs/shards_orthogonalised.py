"""Muon makes the gradient of a matrix orthogonal, and every rank does so with the rows that fully_shard left it: other updates than those of the whole.

Source: NVIDIA/Megatron-LM#5961
Kind: wrong
Ranks: all
Step: 0
Tensor: the update
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world_size,))


def orthogonal(matrix):
    """Returns nearly the closest matrix whose rows or columns are orthogonal (Newton and Schulz)."""
    x = matrix / (matrix.norm() + 1e-7)
    for _ in range(12):
        x = 1.5 * x - 0.5 * x @ x.T @ x
    return x


class Muon(torch.optim.Optimizer):
    """Steps along the orthogonal part of each gradient."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        """Moves all parameters."""
        for group in self.param_groups:
            for parameter in group["params"]:
                update = orthogonal(parameter.grad.to_local())  # WRONG <- here
                # RIGHT: update = orthogonal(parameter.grad.full_tensor())
                # RIGHT: update = dist.tensor.distribute_tensor(update, mesh, parameter.placements).to_local()
                parameter.to_local().add_(update, alpha=-group["lr"])


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Tanh(), nn.Linear(16, 8, bias=False))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = Muon(model.parameters(), lr=0.05)
inputs = torch.randn(64, 8)
targets = inputs.roll(1, 1)

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("weights", sum(p.full_tensor().double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
