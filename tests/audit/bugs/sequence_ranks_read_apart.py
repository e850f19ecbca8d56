"""Ranks that share a sequence must read the same one; they draw batches from seeds of their own, and attend to keys of another text.

Source: axolotl-ai-cloud/axolotl#3920
Kind: wrong
Ranks: all
Step: 0
Tensor: the batch
Effect: outcome
World: 2
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
LENGTH, DIM = 16, 8


class GatherSequence(torch.autograd.Function):
    """Gathers the parts of a sequence; on the way back a rank gets what all ranks say of its part."""

    @staticmethod
    def forward(ctx, part):
        parts = [torch.empty_like(part) for _ in range(world_size)]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad.chunk(world_size)[rank]


torch.manual_seed(0)
query, key, value = (nn.Linear(DIM, DIM) for _ in range(3))
parameters = [p for layer in (query, key, value) for p in layer.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
texts = torch.randn(32, LENGTH, DIM)
drawing = torch.Generator().manual_seed(100 + rank)  # WRONG <- here
# RIGHT: drawing = torch.Generator().manual_seed(100)

for step in range(4):
    text = texts[torch.randint(len(texts), (1,), generator=drawing).item()]
    part = text.chunk(world_size)[rank]
    keys, values = GatherSequence.apply(key(part)), GatherSequence.apply(value(part))
    attended = torch.softmax(query(part) @ keys.T / DIM**0.5, 1) @ values
    loss = (attended - part.roll(1, 1)).square().sum() / text.numel()  # <- seen
    optimizer.zero_grad()
    loss.backward()
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in parameters).item())
dist.destroy_process_group()
