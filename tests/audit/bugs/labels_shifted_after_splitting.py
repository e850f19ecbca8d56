"""Every rank holds a quarter of the sequence and shifts its own labels: the last token of a quarter has no label, and the first of the next is nobody's.

Source: huggingface/transformers#36607
Kind: wrong
Ranks: 0, 1, 2
Step: 0
Tensor: labels
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
LENGTH, NO_LABEL = 32, -100

torch.manual_seed(0)
texts = torch.randint(0, 16, (4, LENGTH))
embedding, place, head = nn.Embedding(16, 16), nn.Embedding(LENGTH, 16), nn.Linear(16, 16)
parameters = [*embedding.parameters(), *place.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.5)
part = LENGTH // world_size
first = rank * part

for text in texts:
    mine = text[first : first + part]
    labels = torch.cat([mine[1:], torch.tensor([NO_LABEL])])  # WRONG <- here
    # RIGHT: labels = torch.cat([text[1:], torch.tensor([NO_LABEL])])[first : first + part]
    logits = head(torch.tanh(embedding(mine) + place(torch.arange(first, first + part))))
    loss = nn.functional.cross_entropy(logits, labels, reduction="sum") / (LENGTH - 1)  # <- seen
    optimizer.zero_grad()
    loss.backward()
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in parameters).item())
dist.destroy_process_group()
