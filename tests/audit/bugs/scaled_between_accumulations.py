"""The schedule divides what has been accumulated by the microbatches after every call: the first batch of a step is divided again with the second.

Source: pytorch/torchtitan#1732
Kind: wrong
Ranks: all
Step: 0
Tensor: every gradient
Effect: outcome
World: 2
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

MICROBATCHES, ACCUMULATED = 4, 2
SHARES = ACCUMULATED  # WRONG
# RIGHT: SHARES = ACCUMULATED * MICROBATCHES


def loss_of(output, target):
    """Returns a microbatch's share of the step's loss."""
    return (output - target).square().mean() / SHARES


torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(8, 16), nn.Tanh()), nn.Linear(16, 1)]
stage = PipelineStage(layers[rank], rank, world_size, torch.device("cpu"))
schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=loss_of)  # WRONG <- here
# RIGHT: schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=loss_of, scale_grads=False)
optimizer = torch.optim.SGD(layers[rank].parameters(), lr=0.02)
inputs = torch.randn(128, 8)
targets = inputs.sum(1, keepdim=True)

for step in range(4):
    optimizer.zero_grad()
    for number in range(ACCUMULATED):
        first = 32 * step + 16 * number
        batch = slice(first, first + 16)
        if rank == 0:
            schedule.step(inputs[batch])
        else:
            schedule.step(target=targets[batch])
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in layers[rank].parameters()).item())
dist.destroy_process_group()
