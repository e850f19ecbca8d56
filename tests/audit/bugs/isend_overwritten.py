"""A stage writes the next activation into the buffer that isend is still sending: the next stage receives the later one.

Source: NVIDIA/Megatron-LM#4047
Kind: wrong
Ranks: 1
Step: 0
Tensor: outgoing
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
stage = nn.Linear(8, 8)
inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(7))

for batch in inputs.chunk(2):
    with torch.no_grad():
        if rank == 0:
            outgoing = torch.empty(2, 8)
            sends = []
            for microbatch in batch.chunk(MICROBATCHES):
                # RIGHT: outgoing = torch.empty(2, 8)
                outgoing.copy_(torch.tanh(stage(microbatch)))  # <- here
                sends.append(dist.isend(outgoing, 1))
            for send in sends:
                send.wait()
        else:
            outputs = []
            for _ in range(MICROBATCHES):
                incoming = torch.empty(2, 8)
                dist.recv(incoming, 0)
                outputs.append(stage(incoming))
            print("outputs", [round(value, 6) for value in torch.cat(outputs)[:, 0].tolist()])

dist.destroy_process_group()
