"""The warm-up counts the samples that a rank has read itself; texts are packed unevenly, so ranks step with different learning rates.

Source: karpathy/nanochat#857
Kind: wrong
Ranks: 1
Step: 0
Tensor: the learning rate
Effect: replicas
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(128, 8)
targets = inputs.sum(1, keepdim=True)

sizes = torch.randint(2, 8, (world_size, 4))
samples_read = 0

for step in range(4):
    first, size = 32 * step + 8 * rank, int(sizes[rank, step])
    loss = (model(inputs[first : first + size]) - targets[first : first + size]).square().sum() / 16
    samples_read += size  # WRONG
    # RIGHT: samples_read += int(sizes[:, step].sum()) // world_size
    optimizer.param_groups[0]["lr"] = 0.1 * min(1.0, samples_read / 32)  # <- here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
