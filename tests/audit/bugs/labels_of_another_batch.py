"""The first stage reads inputs and the last reads labels, each through its own shuffled loader: the seeds differ, and so do the batches.

Source: deepspeedai/DeepSpeed#5729
Kind: wrong
Ranks: 1
Step: 0
Tensor: the labels
Effect: outcome
World: 2
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(8, 16), nn.Tanh()), nn.Linear(16, 1)]
inputs = torch.randn(64, 8)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
stage = PipelineStage(layers[rank], rank, world_size, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 4, loss_fn=nn.MSELoss())
optimizer = torch.optim.SGD(layers[rank].parameters(), lr=0.05)
order = torch.Generator().manual_seed(rank)  # WRONG <- here
# RIGHT: order = torch.Generator().manual_seed(0)

for x, y in DataLoader(data, batch_size=16, shuffle=True, generator=order):  # <- seen
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(x)  # <- seen
    else:
        schedule.step(target=y)  # <- seen
    optimizer.step()

print("weights", sum(p.double().abs().sum() for p in layers[rank].parameters()).item())
dist.destroy_process_group()
