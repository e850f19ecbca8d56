"""A transformer that fully_shard divides, trained on random tokens."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
layers = [nn.TransformerEncoderLayer(2048, 16, 8192, dropout=0.0, batch_first=True) for _ in range(12)]
model = nn.Sequential(nn.Embedding(32_000, 2048), *layers, nn.Linear(2048, 32_000)).cuda()
for part in [*model, model]:
    fully_shard(part, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(3):
    tokens = torch.randint(32_000, (4, 2048), device="cuda")
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
