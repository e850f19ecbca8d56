"""The schedule adds the gradients of eight microbatches whose losses are means: they are eight times those of one batch.

Source: pytorch/torchtitan#2972
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

torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(8, 16), nn.Tanh()), nn.Linear(16, 1)]
stage = PipelineStage(layers[rank], rank, world_size, torch.device("cpu"))
schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=nn.MSELoss(), scale_grads=False)  # WRONG <- here
# RIGHT: schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=nn.MSELoss())
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
