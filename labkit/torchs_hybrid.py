"""The same GPT on the same mesh by torch's own: DeviceMesh, parallelize_module, fully_shard, pipelining."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from labkit.models import GPT, VOCABULARY, Addition, Block, loss_of_logits, optimizer_for


class _Block(nn.Module):
    """A block of the course's GPT with q, k and v apart, as torch's plan wants them."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.norm1, self.norm2, self.out, self.up, self.down = block.norm1, block.norm2, block.out, block.up, block.down
        self.width = block.out.in_features // block.num_heads
        for name, weight, bias in zip("qkv", block.qkv.weight.chunk(3), block.qkv.bias.chunk(3), strict=True):
            layer = nn.Linear(weight.shape[1], weight.shape[0])
            with torch.no_grad():
                layer.weight.copy_(weight)
                layer.bias.copy_(bias)
            setattr(self, name, layer)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        layers: list[Any] = [self.q, self.k, self.v]
        q, k, v = (each(normed).unflatten(-1, (-1, self.width)).transpose(1, 2) for each in layers)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        out: Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return out


class _Stage(nn.Module):
    """A stage of the GPT; the first has the embedding, the last a layer for the logits that begins with its numbers."""

    def __init__(self, gpt: GPT, stage: int, num_stages: int) -> None:
        super().__init__()
        each = len(gpt.blocks) // num_stages
        self.tokens = gpt.tokens if stage == 0 else None
        self.positions = gpt.positions if stage == 0 else None
        self.blocks = nn.ModuleList(_Block(block) for block in gpt.blocks[stage * each : (stage + 1) * each])  # type: ignore[arg-type]
        self.norm, self.head = None, None
        if stage == num_stages - 1:
            self.norm = gpt.norm
            self.head = nn.Linear(gpt.tokens.embedding_dim, len(VOCABULARY), bias=False)
            with torch.no_grad():
                self.head.weight.copy_(gpt.tokens.weight)

    def forward(self, x: Tensor) -> Tensor:
        if self.tokens is not None and self.positions is not None:
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        if self.head is None or self.norm is None:
            return x
        logits: Tensor = self.head(self.norm(x))
        return logits.clone()  # fully_shard warns of a view


def train_torchs(
    num_steps: int, *, shard: int = 2, pipeline: int = 2, tensor: int = 2, microbatch: int = 16
) -> list[float]:
    """Return the loss of each step on this replica, known on the last stage; others return []."""
    mesh = init_device_mesh("cpu", (shard, pipeline, tensor), mesh_dim_names=("shard", "pipeline", "tensor"))
    place = mesh.get_local_rank("pipeline")
    module = _Stage(GPT(), place, pipeline)
    plan: dict[str, Any] = {}
    for number in range(len(module.blocks)):
        plan |= {f"blocks.{number}.{name}": ColwiseParallel() for name in ("q", "k", "v", "up")}
        plan |= {f"blocks.{number}.{name}": RowwiseParallel() for name in ("out", "down")}
    if module.tokens is not None:
        plan["tokens"] = RowwiseParallel(input_layouts=Replicate())
    if module.head is not None:
        plan["head"] = ColwiseParallel(output_layouts=Replicate())
    parallelize_module(module, mesh["tensor"], plan)
    for block in (*module.blocks, module):
        fully_shard(block, mesh=mesh["shard"], reshard_after_forward=False)
    group = mesh.get_group("pipeline")
    count = 64 // shard // microbatch
    stage = PipelineStage(module, place, pipeline, torch.device("cpu"), group=group)
    schedule = Schedule1F1B(stage, count, loss_fn=loss_of_logits)
    optimizer, found, share = optimizer_for(module), [], 64 // shard
    first = mesh.get_local_rank("shard") * share
    for step in range(num_steps):
        tokens, targets = (each[first : first + share].contiguous() for each in Addition().batch(step, 64))
        losses: list[Tensor] = []
        ends: dict[str, Any] = {"target": targets, "losses": losses} if place == pipeline - 1 else {}
        schedule.step(*([tokens] if place == 0 else []), **ends)
        for group_of in optimizer.param_groups:
            group_of["lr"] = 3e-3 * min(1.0, 10 * (step + 1) / num_steps)
        _tie(module, group)
        _clip(module, group)
        optimizer.step()
        optimizer.zero_grad()
        found += [torch.stack(losses).mean().item()] if losses else []
    return found


def _tie(module: _Stage, group: dist.ProcessGroup) -> None:
    """Add up what both uses of the embedding contribute; torch leaves that to the program. There are two stages."""
    if dist.get_world_size(group) == 2:
        layer: Any = module.tokens or module.head
        dist.all_reduce(layer.weight.grad.to_local(), group=group)


def _clip(module: _Stage, group: dist.ProcessGroup, max_norm: float = 1.0) -> None:
    """Clip by the norm of all stages: a DTensor knows along which axes it is cut; a tied weight counts once."""
    of_stage = dist.get_world_size() // dist.get_world_size(group)
    squares = torch.zeros(())
    gradients: dict[str, Any] = {name: each.grad for name, each in module.named_parameters()}
    for name, gradient in gradients.items():
        sizes = zip(gradient.placements, gradient.device_mesh.shape, strict=True)
        pieces = math.prod(size for placement, size in sizes if not placement.is_replicate())
        if not name.startswith("head"):
            squares += gradient.to_local().square().sum() * pieces / of_stage
    dist.all_reduce(squares)
    for gradient in gradients.values():
        gradient.to_local().mul_((max_norm / (squares.sqrt() + 1e-6)).clamp(max=1.0))
