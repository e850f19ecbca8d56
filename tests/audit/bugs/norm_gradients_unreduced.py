"""With sequence parallelism every rank normalises a part of the sequence; the norm's gradients are not added up, and its copies drift.

Source: NVIDIA/Megatron-LM#1446
Kind: wrong
Ranks: all
Step: 0
Tensor: norm.weight, norm.bias
Effect: replicas
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


class Gather(torch.autograd.Function):
    """Gathers the sequence; on the way back every rank gets the sum of what all ranks say of its part."""

    @staticmethod
    def forward(ctx, part):
        parts = [torch.empty_like(part) for _ in range(world_size)]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        part = torch.empty_like(grad.chunk(world_size)[0])
        dist.reduce_scatter(part, [piece.contiguous() for piece in grad.chunk(world_size)])
        return part


class Scatter(torch.autograd.Function):
    """Adds up the ranks' outputs and keeps this rank's part of the sequence; the inverse of Gather."""

    @staticmethod
    def forward(ctx, whole):
        return Gather.backward(ctx, whole)

    @staticmethod
    def backward(ctx, grad):
        return Gather.forward(ctx, grad)


torch.manual_seed(0)
norm = nn.LayerNorm(8)
up = nn.Parameter((torch.randn(32, 8) / 3).chunk(world_size, 0)[rank].clone())
down = nn.Parameter((torch.randn(8, 32) / 6).chunk(world_size, 1)[rank].clone())
optimizer = torch.optim.SGD([*norm.parameters(), up, down], lr=0.1)
sequences = torch.randn(4, 32, 8)

for sequence in sequences:
    part = sequence.chunk(world_size)[rank]
    output = Scatter.apply(torch.relu(Gather.apply(norm(part)) @ up.T) @ down.T)
    loss = (output - part.roll(1, 1)).square().sum() / sequence.numel()
    optimizer.zero_grad()
    loss.backward()
    # RIGHT: for parameter in norm.parameters():
    # RIGHT:     dist.all_reduce(parameter.grad)
    optimizer.step()  # <- here

print("weights", norm.weight.double().abs().sum().item())
dist.destroy_process_group()
