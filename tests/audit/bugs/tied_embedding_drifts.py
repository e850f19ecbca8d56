"""The first stage embeds and the last un-embeds with the same matrix; the gradients of its two copies are not added, and the copies drift apart.

Source: uw-syfi/piper#13
Kind: wrong
Ranks: all
Step: 0
Tensor: embedding
Effect: replicas
World: 2
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
FIRST, LAST = 0, 1

torch.manual_seed(0)
embedding = nn.Parameter(torch.randn(32, 16) / 4)  # both stages hold it
torch.manual_seed(1 + rank)
layer = nn.Linear(16, 16)
optimizer = torch.optim.SGD([embedding, *layer.parameters()], lr=0.5)
tokens = torch.randint(0, 32, (32, 9), generator=torch.Generator().manual_seed(7))

for step in range(4):
    batch = tokens[8 * step : 8 * step + 8]
    optimizer.zero_grad()
    if rank == FIRST:
        hidden = torch.tanh(layer(nn.functional.embedding(batch[:, :-1], embedding)))
        dist.send(hidden.detach(), LAST)
        gradient = torch.empty_like(hidden)
        dist.recv(gradient, LAST)
        hidden.backward(gradient)
    else:
        hidden = torch.empty(8, 8, 16)
        dist.recv(hidden, FIRST)
        hidden.requires_grad_()
        logits = torch.tanh(layer(hidden)) @ embedding.T
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        dist.send(hidden.grad, FIRST)
    # RIGHT: dist.all_reduce(embedding.grad)
    optimizer.step()  # <- here

print("weights", embedding.double().abs().sum().item())
dist.destroy_process_group()
