"""The mesh names its axes the wrong way round: tensor parallelism, which communicates in every layer, runs between the nodes.

Source: Narayanan et al. 2021: Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, section 3.2
Kind: slow
Ranks: all
Step: 0
Tensor: the output of every block
Effect: slower
World: 4 gpus_per_node=2 nic=ethernet_25g
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group()
rank, world_size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("tensor", "data"))  # WRONG <- here
# RIGHT: mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("data", "tensor"))

torch.manual_seed(0)
model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)) for _ in range(2)]).to(device)
for block in model:
    parallelize_module(block, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(4096, 64, device=device)

for step in range(2):
    loss = model(inputs[2048 * step + mesh["data"].get_local_rank() : 2048 * step + 2048 : 2]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    gradients = [parameter.grad.to_local() for parameter in model.parameters()]
    bucket = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(bucket, op=dist.ReduceOp.AVG, group=mesh.get_group("data"))
    for gradient, part in zip(gradients, bucket.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))
    optimizer.step()

print("loss", loss.item())
dist.destroy_process_group()
