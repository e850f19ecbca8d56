"""A transformer's layers cut over tensor ranks, tokens too: plain torch.distributed code, as on real GPUs.

Korthikanti and others 2022, arXiv 2205.05198: between products each tensor rank has its own tokens (sequence parallel),
in products its own heads and columns. Shapes: S tokens of a sequence, B sequences, D hidden, H heads and V vocabulary
of this rank, K width of a head.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from labkit.planned_steps.programs import PLAIN, Program
from labkit.planner.model import Model

_ROTARY_BASE = 10_000.0
ALL_GATHER: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
"""As torch names them since 2.13, and before."""


def _gathered(x: Tensor, group: Any) -> Tensor:
    whole = torch.empty((x.shape[0] * dist.get_world_size(group), *x.shape[1:]), dtype=x.dtype, device=x.device)
    ALL_GATHER(whole, x.contiguous(), group=group)
    return whole


def _scattered(x: Tensor, group: Any) -> Tensor:
    mine = torch.empty((x.shape[0] // dist.get_world_size(group), *x.shape[1:]), dtype=x.dtype, device=x.device)
    REDUCE_SCATTER(mine, x.contiguous(), group=group)
    return mine


class _ColumnLinear(torch.autograd.Function):
    """All tokens times this rank's columns; the tokens are gathered again in backward, or kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, group: Any, keeps: bool) -> Tensor:
        ctx.group, ctx.keeps = group, keeps
        whole = _gathered(x, group)
        ctx.save_for_backward(whole if keeps else x, weight)
        return functional.linear(whole, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weight = ctx.saved_tensors
        mine = _scattered(grad @ weight, ctx.group)
        whole = x if ctx.keeps else _gathered(x, ctx.group)
        return mine, grad.flatten(0, -2).T @ whole.flatten(0, -2), None, None


class _SumOut(torch.autograd.Function):
    """The sum of every rank's part, of which this rank keeps its own tokens."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _scattered(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _gathered(grad, ctx.group), None


class _VocabularyLoss(torch.autograd.Function):
    """Mean cross entropy of logits of which each rank has its own part of the vocabulary."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, first: int, group: Any, keeps: bool) -> Tensor:
        logits = logits.float()  # (S * B, V)
        most = logits.max(dim=-1).values
        dist.all_reduce(most, op=dist.ReduceOp.MAX, group=group)
        shifted = logits - most[:, None] if keeps else logits.sub_(most[:, None])
        mine = (targets >= first) & (targets < first + logits.shape[-1])
        place = torch.where(mine, targets - first, 0)[:, None]
        wanted = shifted.gather(-1, place)[:, 0] * mine
        weights = shifted.exp_()
        both = torch.stack([wanted, weights.sum(-1)])
        dist.all_reduce(both, group=group)
        ctx.save_for_backward(weights.div_(both[1][:, None]), place, mine)
        return (both[1].log() - both[0]).mean()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        probability, place, mine = ctx.saved_tensors
        probability.scatter_add_(-1, place, -mine.float()[:, None])
        return probability.mul_(grad / probability.shape[0]).bfloat16(), None, None, None, None


class Column(nn.Module):
    """A linear layer of which this rank has its own columns."""

    def __init__(self, inputs: int, outputs: int, group: Any, *, keeps: bool) -> None:
        super().__init__()
        self.weight, self.group, self.keeps = nn.Parameter(torch.empty(outputs, inputs)), group, keeps

    def forward(self, x: Tensor) -> Tensor:
        """Return all tokens' values in these columns."""
        if dist.get_world_size(self.group) == 1:
            return functional.linear(x, self.weight)
        found: Tensor = _ColumnLinear.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.group, self.keeps
        )
        return found


def sum_out(x: Tensor, group: Any) -> Tensor:
    """Return this rank's tokens of the sum of all ranks' parts."""
    if dist.get_world_size(group) == 1:
        return x
    found: Tensor = _SumOut.apply(x, group)  # type: ignore[no-untyped-call]
    return found


class PlannedBlock(nn.Module):
    """One layer: attention with rotary positions, and an MLP with or without a gate."""

    def __init__(self, model: Model, group: Any, program: Program = PLAIN) -> None:
        super().__init__()
        size, keeps = dist.get_world_size(group), program.keeps_gathered
        self.group, self.gated, self.width = group, model.gated, model.hidden // model.heads
        self.heads, self.kv_heads = model.heads // size, max(model.kv_heads // size, 1)
        inner = model.intermediate // size
        self.norm1, self.norm2 = nn.RMSNorm(model.hidden), nn.RMSNorm(model.hidden)
        self.qkv = Column(model.hidden, (self.heads + 2 * self.kv_heads) * self.width, group, keeps=keeps)
        self.out = nn.Linear(self.heads * self.width, model.hidden, bias=False)
        self.up = Column(model.hidden, (2 if model.gated else 1) * inner, group, keeps=keeps)
        self.down = nn.Linear(inner, model.hidden, bias=False)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Return the layer's output for this rank's tokens, shape (S / tensor, B, D)."""
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (-1, self.width)).permute(1, 2, 0, 3)  # (B, H, S, K)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        mixed = functional.scaled_dot_product_attention(
            _rotated(q, rotation), _rotated(k, rotation), v, is_causal=True, enable_gqa=self.heads != self.kv_heads
        )
        x = x + sum_out(self.out(mixed.permute(2, 0, 1, 3).flatten(2)), self.group)
        inner = self.up(self.norm2(x))
        if self.gated:
            gate, up = inner.chunk(2, dim=-1)
            inner = functional.silu(gate) * up
        else:
            inner = functional.gelu(inner)
        return x + sum_out(self.down(inner), self.group)


def rotation(model: Model) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of rotary positions (Su and others 2021, arXiv 2104.09864), shape (S, K)."""
    width = model.hidden // model.heads
    rates = _ROTARY_BASE ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = torch.outer(torch.arange(model.sequence, dtype=torch.float32), rates).repeat(1, 2)
    return angles.cos().bfloat16(), angles.sin().bfloat16()


def _rotated(x: Tensor, by: tuple[Tensor, Tensor]) -> Tensor:
    half1, half2 = x.chunk(2, dim=-1)
    return x * by[0] + torch.cat([-half2, half1], dim=-1) * by[1]


class Embedding(nn.Module):
    """Embedding of which this rank has its own part of the vocabulary."""

    def __init__(self, model: Model, group: Any) -> None:
        super().__init__()
        self.rows = -(-model.vocabulary // dist.get_world_size(group))
        self.first, self.group = self.rows * dist.get_rank(group), group
        self.weight = nn.Parameter(torch.empty(self.rows, model.hidden))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return this rank's tokens, shape (S / tensor, B, D), of tokens of shape (S, B)."""
        mine = (tokens >= self.first) & (tokens < self.first + self.rows)
        found = functional.embedding(torch.where(mine, tokens - self.first, 0), self.weight) * mine[..., None]
        return sum_out(found, self.group)


class Head(nn.Module):
    """The last norm, the logits of this rank's part of the vocabulary, and the loss."""

    def __init__(self, model: Model, group: Any, program: Program = PLAIN) -> None:
        super().__init__()
        self.keeps_logits = program.keeps_logits
        self.rows = -(-model.vocabulary // dist.get_world_size(group))
        self.first, self.group = self.rows * dist.get_rank(group), group
        self.norm, self.columns = (
            nn.RMSNorm(model.hidden),
            Column(model.hidden, self.rows, group, keeps=program.keeps_gathered),
        )

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a microbatch."""
        logits = self.columns(self.norm(x)).flatten(0, 1)
        found: Tensor = _VocabularyLoss.apply(  # type: ignore[no-untyped-call]
            logits, targets.flatten(), self.first, self.group, self.keeps_logits
        )
        return found
