"""Each rank holds a part of the vocabulary and adds up the exponentials of its own part alone: a token competes only with its neighbours.

Source: NVIDIA/Megatron-LM#737
Kind: wrong
Ranks: all
Step: 0
Tensor: the loss
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

VOCABULARY, WIDTH = 32, 16


class SumOverRanks(torch.autograd.Function):
    """Adds what the ranks hold; their gradient passes unchanged."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


torch.manual_seed(0)
head = nn.Parameter(torch.randn(VOCABULARY, WIDTH).chunk(world_size)[rank].clone())
optimizer = torch.optim.SGD([head], lr=0.5)
inputs = torch.randn(64, WIDTH)
tokens = torch.randint(0, VOCABULARY, (64,))
first = rank * VOCABULARY // world_size

for step in range(4):
    x, y = inputs[16 * step : 16 * step + 16], tokens[16 * step : 16 * step + 16]
    logits = x @ head.T
    mine = (y >= first) & (y < first + len(head))
    own = logits.gather(1, (y - first).clamp(0, len(head) - 1)[:, None])[:, 0] * mine
    exponentials = logits.exp().sum(1)  # WRONG <- here
    # RIGHT: exponentials = SumOverRanks.apply(logits.exp().sum(1))
    loss = (exponentials.log() - SumOverRanks.apply(own)).mean()  # <- seen
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in [head]).item())
dist.destroy_process_group()
