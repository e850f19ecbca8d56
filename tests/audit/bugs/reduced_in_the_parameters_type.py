"""fully_shard computes in bfloat16 and is not told in what to reduce: gradients of eight ranks are added in bfloat16, too.

Source: allenai/OLMo#280
Kind: wrong
Ranks: all
Step: 0
Tensor: every gradient
Effect: outcome
World: 8
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world_size,))

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)  # WRONG <- here
# RIGHT: policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
inputs = torch.randn(256, 8)
targets = inputs.roll(1, 1)

for step in range(4):
    batch = range(64 * step + rank, 64 * step + 64, world_size)
    loss = (model(inputs[batch]).float() - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("weights", sum(p.full_tensor().double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
