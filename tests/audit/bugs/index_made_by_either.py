"""The first rank of each node writes the order of the samples where all can read it, and nobody waits: rank 0 finds none if both writers are late, and takes the samples as they lie.

Source: deepspeedai/Megatron-DeepSpeed#356
Kind: wrong
Ranks: 0
Step: 0
Tensor: order
Effect: late
World: 4
"""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
TRAINER, WRITERS, LOGGER = 0, (1, 2), 3
INDEX = Path("index.pt")

torch.manual_seed(0)
model = nn.Linear(8, 1)
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

if rank in WRITERS:
    told = dist.isend(torch.tensor(len(inputs)), LOGGER)  # how many samples the writer has found
    torch.save(torch.randperm(len(inputs), generator=torch.Generator().manual_seed(7)), INDEX)
    told.wait()
elif rank == LOGGER:
    counts = [torch.tensor(0) for _ in range(LOGGER)]
    asked, *told = [dist.irecv(count, sender) for sender, count in enumerate(counts)]
    asked.wait()
    dist.send(torch.tensor(1), TRAINER)  # the trainer may begin
    for work in told:
        work.wait()
else:
    for _ in range(50):
        model(inputs)  # a warm-up
    dist.send(torch.tensor(0), LOGGER)
    dist.recv(torch.tensor(0), LOGGER)
# RIGHT: dist.barrier()

order = torch.arange(len(inputs))
if rank == TRAINER and INDEX.exists():  # <- here
    order = torch.load(INDEX)
dist.broadcast(order, TRAINER)

for step in range(4):
    batch = order[16 * step + rank : 16 * step + 16 : world_size]
    loss = (model(inputs[batch]) - targets[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
