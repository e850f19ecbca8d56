"""The shape of Llama 3 in plain torch: fully_shard, every layer recomputed, bfloat16 with float32 reduction."""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

SHAPES = {"8b": (32, 4096, 32, 8, 14336), "70b": (80, 8192, 64, 8, 28672)}
LAYERS, WIDTH, HEADS, KV, INNER = SHAPES[sys.argv[1]]
VOCAB, LENGTH, SIZE = 128_256, 8192, 128


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.q, self.o = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, KV * SIZE, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        return checkpoint(self.whole, x, cos, sin, use_reentrant=False)

    def whole(self, x, cos, sin):
        h = self.before(x)
        q, k, v = (one(h).unflatten(-1, (-1, SIZE)).transpose(1, 2) for one in (self.q, self.k, self.v))
        q, k = (turned(one, cos, sin) for one in (q, k))
        k, v = (one.repeat_interleave(HEADS // KV, dim=1) for one in (k, v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        h = self.between(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def turned(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH, eps=1e-5), nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids, cos, sin):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
with torch.device("meta"):
    model = Llama()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.layers:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
model.to_empty(device="cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
angles = torch.outer(torch.arange(LENGTH), 500_000 ** (-torch.arange(0, SIZE, 2) / SIZE))
cos, sin = angles.cos().cuda().bfloat16(), angles.sin().cuda().bfloat16()
for _ in range(2):
    ids = torch.randint(VOCAB, (1, LENGTH + 1), device="cuda")
    loss = F.cross_entropy(model(ids[:, :-1], cos, sin).flatten(0, 1).float(), ids[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
