"""Every rank divides by its own number of tokens and DDP averages the results: a token in a short batch counts more.

Source: huggingface/transformers#34242
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
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
PAD = -100

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 32)))
tokens = torch.randint(0, 32, (32, 12))
labels = tokens.roll(-1, 1)
for row in range(len(labels)):
    labels[row, 3 + row % 8 :] = PAD  # texts have different lengths
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

for step in range(4):
    rows = slice(8 * step + 2 * rank, 8 * step + 2 * rank + 2)
    logits = model(tokens[rows])  # <- seen
    loss = nn.functional.cross_entropy(
        logits.flatten(0, 1), labels[rows].flatten(), ignore_index=PAD, reduction="sum"
    )  # <- seen
    num_tokens = (labels[rows] != PAD).sum()
    # RIGHT: dist.all_reduce(num_tokens)
    # RIGHT: num_tokens = num_tokens / world_size
    loss = loss / num_tokens  # <- here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
