"""The course's GPT, cut by torch's own tensor parallelism, as a peer for what a lesson builds."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional

from labkit.models import GPT, IGNORED, VOCABULARY, Addition, Block, optimizer_for


class SplitBlock(nn.Module):
    """A block of the course's GPT with q, k and v apart, as torch's plan wants them."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.norm1, self.norm2, self.out, self.up, self.down = block.norm1, block.norm2, block.out, block.up, block.down
        self.width = block.out.in_features // block.num_heads
        thirds = zip(block.qkv.weight.detach().chunk(3), block.qkv.bias.detach().chunk(3), strict=True)
        self.q, self.k, self.v = (_linear(weight.clone(), bias.clone()) for weight, bias in thirds)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the block returns."""
        normed = self.norm1(x)
        q, k, v = (each(normed).unflatten(-1, (-1, self.width)).transpose(1, 2) for each in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        out: Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return out


class SplitGPT(nn.Module):
    """The course's GPT; the logits have a layer of their own, which shares the embedding's weight."""

    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        self.tokens, self.norm, self.positions = gpt.tokens, gpt.norm, gpt.positions.weight
        self.blocks = nn.ModuleList(SplitBlock(block) for block in gpt.blocks)  # type: ignore[arg-type]
        self.head = nn.Linear(gpt.tokens.embedding_dim, len(VOCABULARY), bias=False, device=gpt.tokens.weight.device)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor, positions: Tensor) -> Any:
        """Return the logits, as the plan says."""
        x = self.tokens(tokens) + positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def parallelized(gpt: GPT, sequence: bool) -> SplitGPT:
    """Return the GPT cut over all ranks by torch's plan; the logits stay cut."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = SplitGPT(gpt)
    cut: Any = Shard(1) if sequence else Replicate()
    plan: dict[str, Any] = {
        "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=cut),
        "head": ColwiseParallel(input_layouts=cut, output_layouts=Shard(-1), use_local_output=False),
    }
    for number in range(len(model.blocks)):
        block = f"blocks.{number}"
        plan |= {f"{block}.{name}": ColwiseParallel() for name in ("q", "k", "v")}
        plan |= {f"{block}.{name}": RowwiseParallel(output_layouts=cut) for name in ("out", "down")}
        plan[f"{block}.up"] = ColwiseParallel(input_layouts=cut)
        if sequence:
            plan |= {
                f"{block}.norm1": SequenceParallel(use_local_output=True),
                f"{block}.norm2": SequenceParallel(use_local_output=True),
            }
            plan |= {f"{block}.{name}": ColwiseParallel(input_layouts=Shard(1)) for name in ("q", "k", "v")}
    if sequence:
        plan["norm"] = SequenceParallel(use_local_output=True)
    parallelize_module(model, mesh, plan)
    model.head.weight = model.tokens.weight
    return model


def loss_of_torchs(model: SplitGPT, tokens: Tensor, targets: Tensor, sequence: bool) -> Tensor:
    """Return the loss; call it, and backward, under loss_parallel."""
    positions = model.positions[: tokens.shape[1]]
    if sequence:
        each = tokens.shape[1] // dist.get_world_size()
        positions = positions[dist.get_rank() * each : (dist.get_rank() + 1) * each]
    logits = model(tokens, positions)
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def train_torchs(num_steps: int, sequence: bool) -> list[float]:
    """Return the losses of the course's GPT under torch's plan, trained as lesson 12 trains it."""
    model, losses = parallelized(GPT(), sequence), []
    optimizer = optimizer_for(model)
    for step, (tokens, targets) in enumerate(Addition().loader(num_steps, 64)):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, 10 * (step + 1) / num_steps)
        optimizer.zero_grad()
        with loss_parallel():
            loss = loss_of_torchs(model, tokens, targets, sequence)
            torch.autograd.backward(loss)
        if sequence and model.positions.grad is not None:
            dist.all_reduce(model.positions.grad)
        optimizer.step()
        losses.append(loss.full_tensor().item() if isinstance(loss, DTensor) else loss.item())
    return losses


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    return layer
