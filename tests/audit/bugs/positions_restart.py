"""Every rank holds a quarter of the sequence and numbers its positions from zero: the model takes all tokens for those of the beginning.

Source: NVIDIA/Megatron-LM#5243
Kind: wrong
Ranks: 1, 2, 3
Step: 0
Tensor: positions
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
LENGTH = 32

torch.manual_seed(0)
tokens = torch.randint(0, 16, (4, LENGTH + 1))
embedding, place, head = nn.Embedding(16, 16), nn.Embedding(LENGTH, 16), nn.Linear(16, 16)
parameters = [*embedding.parameters(), *place.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.5)
part = LENGTH // world_size
first = rank * part

for sequence in tokens:
    mine, following = sequence[first : first + part], sequence[first + 1 : first + part + 1]
    positions = torch.arange(part)  # WRONG <- here
    # RIGHT: positions = torch.arange(first, first + part)
    logits = head(torch.tanh(embedding(mine) + place(positions)))  # <- seen
    loss = nn.functional.cross_entropy(logits, following, reduction="sum") / LENGTH  # <- seen
    optimizer.zero_grad()
    loss.backward()
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in parameters).item())
dist.destroy_process_group()
