"""A stage receives every microbatch into the same buffer, and backward uses what the buffer holds then: the last one's activation.

Source: pytorch/pytorch#185331
Kind: wrong
Ranks: 1
Step: 0
Tensor: incoming
Effect: outcome
World: 2
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
MICROBATCHES = 4

torch.manual_seed(rank)
stage = nn.Sequential(nn.Linear(8, 16), nn.Tanh()) if rank == 0 else nn.Linear(16, 1)
optimizer = torch.optim.SGD(stage.parameters(), lr=0.05)
inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(7))
targets = inputs.sum(1, keepdim=True)
buffer = torch.empty(4, 16)

for step in range(4):
    batch = slice(16 * step, 16 * step + 16)
    optimizer.zero_grad()
    if rank == 0:
        outputs = [stage(x) for x in inputs[batch].chunk(MICROBATCHES)]
        for output in outputs:
            dist.send(output.detach(), 1)
        for output in outputs:
            gradient = torch.empty_like(output)
            dist.recv(gradient, 1)
            output.backward(gradient)
    else:
        received, losses = [], []
        for y in targets[batch].chunk(MICROBATCHES):
            # RIGHT: buffer = torch.empty(4, 16)
            dist.recv(buffer, 0)  # <- here
            incoming = buffer.detach().requires_grad_()
            received.append(incoming)
            losses.append((stage(incoming) - y).square().mean() / MICROBATCHES)
        for incoming, loss in zip(received, losses, strict=True):
            loss.backward()
            dist.send(incoming.grad, 0)
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in stage.parameters()).item())
dist.destroy_process_group()
