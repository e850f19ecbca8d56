"""The loss is divided by the microbatches, and so does the schedule: gradients are an eighth of those of one batch.

Source: deepspeedai/DeepSpeed#8154
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

MICROBATCHES = 8


def loss_of(output, target):
    """Returns a microbatch's share of the batch's loss."""
    return (output - target).square().mean() / MICROBATCHES  # WRONG <- here
    # RIGHT: return (output - target).square().mean()


torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(8, 16), nn.Tanh()), nn.Linear(16, 1)]
stage = PipelineStage(layers[rank], rank, world_size, torch.device("cpu"))
schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=loss_of)
optimizer = torch.optim.SGD(layers[rank].parameters(), lr=0.02)
inputs = torch.randn(64, 8)
targets = inputs.sum(1, keepdim=True)

for step in range(4):
    batch = slice(16 * step, 16 * step + 16)
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(inputs[batch])
    else:
        schedule.step(target=targets[batch])
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in layers[rank].parameters()).item())
dist.destroy_process_group()
