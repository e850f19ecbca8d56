"""With gradients sharded over the ranks every rank looks for infinities in its own shard: one skips the step and halves its loss scale, the others go on.

Source: facebookresearch/fairscale#180
Kind: wrong
Ranks: 2
Step: 1
Tensor: the loss scale
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = nn.Linear(64, 1, bias=False)
flat = model.weight.detach().view(-1)
shard = flat.chunk(world_size)[rank].clone()  # a quarter of the weights is this rank's to update
inputs = torch.randn(64, 64)
inputs[16:32, 40] *= 300  # a feature of rank 2's quarter spikes in the second step
targets = inputs[:, :32].sum(1, keepdim=True)
scale = 1024.0

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)
    loss = (model(inputs[batch]) - targets[batch]).square().mean()  # <- seen
    model.zero_grad()
    (loss * scale).backward()
    half = (model.weight.grad.view(-1) / world_size).half()
    gradient = torch.empty_like(shard, dtype=torch.float16)
    dist.reduce_scatter(gradient, list(half.chunk(world_size)))
    overflow = (~gradient.isfinite()).any().float()  # <- here
    # RIGHT: dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
    if overflow:
        scale /= 2
    else:
        shard -= 0.01 * (gradient.float() / scale).clamp(-1, 1)
    dist.all_gather(list(flat.chunk(world_size)), shard)

print("scale", scale, "weights", flat.double().abs().sum().item())
dist.destroy_process_group()
