"""The loss that balances experts is made of each rank's own tokens: it pushes every rank's few tokens towards all experts, and not those of the batch.

Source: pytorch/torchtitan#3000
Kind: wrong
Ranks: all
Step: 0
Tensor: the experts' shares of the tokens
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
EXPERTS = 4


class Experts(nn.Module):
    """A router, and one of several layers for each token."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, EXPERTS)
        self.layers = nn.Parameter(torch.randn(EXPERTS, 8, 8) / 4)

    def forward(self, tokens):
        """Returns what the experts make of the tokens, and how uneven their work is."""
        shares = self.router(tokens).softmax(-1)
        weight, expert = shares.max(-1)
        out = weight[:, None] * torch.einsum("td,tdo->to", tokens, self.layers[expert])
        taken = nn.functional.one_hot(expert, EXPERTS).float().mean(0)  # <- here
        # RIGHT: dist.all_reduce(taken)
        # RIGHT: taken /= world_size
        return out, EXPERTS * (taken * shares.mean(0)).sum()


torch.manual_seed(0)
model = DistributedDataParallel(Experts())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(128, 8)
targets = inputs.roll(1, 1)

for step in range(4):
    batch = range(32 * step + rank, 32 * step + 32, world_size)
    out, uneven = model(inputs[batch])
    loss = (out - targets[batch]).square().mean() + 0.1 * uneven  # <- seen
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
