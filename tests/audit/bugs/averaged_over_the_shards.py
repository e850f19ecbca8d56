"""On a mesh of data x tensor parallelism DistributedDataParallel gets no process group: it averages over all ranks, different shards with each other.

Source: NVIDIA/Megatron-LM#5916
Kind: wrong
Ranks: all
Step: 0
Tensor: up, down
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
data, tensor = mesh.get_local_rank("data"), mesh.get_local_rank("tensor")


class SumOverRanks(torch.autograd.Function):
    """Adds what the tensor-parallel ranks hold; their gradient passes unchanged."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x, group=mesh.get_group("tensor"))
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Layer(nn.Module):
    """An MLP of which each tensor-parallel rank holds a half."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter((torch.randn(32, 8) / 3).chunk(2, 0)[tensor].clone())
        self.down = nn.Parameter((torch.randn(8, 32) / 6).chunk(2, 1)[tensor].clone())

    def forward(self, x):
        return SumOverRanks.apply(torch.relu(x @ self.up.T) @ self.down.T)


torch.manual_seed(0)
layer = Layer()
inputs = torch.randn(64, 8)
model = DistributedDataParallel(layer)  # WRONG <- here
# RIGHT: model = DistributedDataParallel(layer, process_group=mesh.get_group("data"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for step in range(4):
    x = inputs[16 * step + data : 16 * step + 16 : 2]
    loss = (model(x) - x.roll(1, 1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
