"""Every microbatch is averaged over its own tokens and the averages are averaged, though the microbatches are not equally long.

Source: huggingface/transformers#34191
Kind: wrong
Ranks: all
Step: 0
Tensor: the loss
Effect: outcome
World: 2
"""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
PAD, ACCUMULATE = -100, 4

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Embedding(32, 16), nn.Linear(16, 32)))
tokens = torch.randint(0, 32, (32, 12))
labels = tokens.roll(-1, 1)
for row in range(len(labels)):
    labels[row, 3 + row // 2 % 4 * 2 :] = PAD  # the same on both ranks, another in every microbatch
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

for step in range(4):
    mine = range(8 * step + rank, 8 * step + 8, world_size)
    num_tokens = (labels[mine] != PAD).sum()
    optimizer.zero_grad()
    for micro, row in enumerate(mine):
        with contextlib.nullcontext() if micro == ACCUMULATE - 1 else model.no_sync():
            logits = model(tokens[row])  # <- seen
            loss = nn.functional.cross_entropy(logits, labels[row], ignore_index=PAD, reduction="sum")  # <- seen
            count = (labels[row] != PAD).sum()
            loss = loss / count / ACCUMULATE  # WRONG <- here
            # RIGHT: loss = loss / num_tokens
            loss.backward()
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
