"""Ranks 0 and 2 hold one expert, 1 and 3 the other; the experts' gradients are averaged over all four ranks, which mixes the two.

Source: NVIDIA/Megatron-LM#1628
Kind: wrong
Ranks: all
Step: 0
Tensor: expert.weight, expert.bias
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]  # those that hold the same expert
mine = rank % 2

torch.manual_seed(0)
shared = nn.Linear(8, 8)
torch.manual_seed(1 + mine)
expert = nn.Linear(8, 1)
optimizer = torch.optim.SGD([*shared.parameters(), *expert.parameters()], lr=0.05)
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(7))
targets = inputs[:, :4].sum(1, keepdim=True) * torch.tensor([1.0, -1.0]).repeat(32)[:, None]

for step in range(4):
    batch = range(16 * step + rank, 16 * step + 16, world_size)  # even rows go to expert 0, odd rows to expert 1
    loss = (expert(torch.tanh(shared(inputs[batch]))) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in shared.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size
    for parameter in expert.parameters():
        dist.all_reduce(parameter.grad)  # WRONG <- here
        # RIGHT: dist.all_reduce(parameter.grad, group=groups[mine])
        parameter.grad /= world_size
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in expert.parameters()).item())
dist.destroy_process_group()
