"""One training step of a decoder-only transformer, split three ways: plain torch.distributed code, as on real GPUs.

Tensor parallel inside a layer (Shoeybi et al. 2019, arXiv 1909.08053), a pipeline of stages in the 1F1B order with a
flush (Narayanan et al. 2021, arXiv 2104.04473) and data parallel over copies of it. Shapes in comments: B microbatch,
S sequence, D hidden, H heads of this rank, K head size, F inner size of this rank, V vocabulary of this rank.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812  # as every PyTorch program has it
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


@dataclass(frozen=True)
class Shape:
    """A model and how its step is split."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int
    vocab: int
    sequence: int
    pipeline: int
    data: int
    tensor: int
    num_microbatches: int
    microbatch: int = 1

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole model."""
        head = self.hidden // self.heads
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_heads * head
        return self.layers * (attention + 3 * self.hidden * self.inner + 2 * self.hidden) + (
            2 * self.vocab * self.hidden + self.hidden
        )

    @property
    def tokens(self) -> int:
        """Tokens of one step."""
        return self.sequence * self.microbatch * self.num_microbatches * self.data


class _CopyIn(torch.autograd.Function):
    """Every rank's own part starts from the same input, so its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class _SumOut(torch.autograd.Function):
    """The output is the sum of every rank's part, so each part has its gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        dist.all_reduce(x, group=group)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


class _VocabLoss(torch.autograd.Function):
    """Cross entropy of logits of which each rank has the columns of its own part of the vocabulary."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor, first: int, group: Any) -> torch.Tensor:
        logits = logits.float()  # (B*S, V)
        most = logits.max(dim=-1).values
        dist.all_reduce(most, op=dist.ReduceOp.MAX, group=group)
        shifted = logits - most[:, None]
        mine = (targets >= first) & (targets < first + logits.shape[-1])
        place = torch.where(mine, targets - first, 0)[:, None]
        wanted = shifted.gather(-1, place)[:, 0] * mine
        weights = shifted.exp()
        total = weights.sum(-1)
        both = torch.stack([wanted, total])
        dist.all_reduce(both, group=group)
        ctx.save_for_backward(weights.div_(both[1][:, None]), place, mine)
        return (both[1].log() - both[0]).mean()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        probability, place, mine = ctx.saved_tensors
        probability.scatter_add_(-1, place, -mine.float()[:, None])
        return (probability * (grad / probability.shape[0])).bfloat16(), None, None, None


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Block(nn.Module):
    """One layer, of which this rank computes its heads and its inner columns."""

    def __init__(self, shape: Shape, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group, self.head = group, shape.hidden // shape.heads
        self.heads, self.kv_heads = shape.heads // shape.tensor, max(shape.kv_heads // shape.tensor, 1)
        inner = shape.inner // shape.tensor
        self.norm_1, self.norm_2 = nn.RMSNorm(shape.hidden), nn.RMSNorm(shape.hidden)
        self.qkv = _linear(shape.hidden, (self.heads + 2 * self.kv_heads) * self.head)
        self.out = _linear(self.heads * self.head, shape.hidden)
        self.gate_up, self.down = _linear(shape.hidden, 2 * inner), _linear(inner, shape.hidden)

    def forward(self, x: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        size, length, _ = x.shape  # (B, S, D)
        qkv = self.qkv(_CopyIn.apply(self.norm_1(x), self.group)).view(size, length, -1, self.head).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=1)  # (B, H, S, K)
        attended = F.scaled_dot_product_attention(
            _rotate(q, rotation), _rotate(k, rotation), v, is_causal=True, enable_gqa=self.heads != self.kv_heads
        )
        x = x + _SumOut.apply(self.out(attended.transpose(1, 2).reshape(size, length, -1)), self.group)
        gate, up = self.gate_up(_CopyIn.apply(self.norm_2(x), self.group)).chunk(2, dim=-1)  # (B, S, F)
        return x + _SumOut.apply(self.down(F.silu(gate) * up), self.group)


def _rotate(x: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return x with rotary position embedding (Su et al. 2021, arXiv 2104.09864)."""
    cos, sin = rotation
    half_1, half_2 = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-half_2, half_1], dim=-1) * sin


class Stage(nn.Module):
    """The layers of one stage; the first also embeds tokens, the last also computes the loss."""

    def __init__(self, shape: Shape, mesh: DeviceMesh) -> None:
        super().__init__()
        self.shape, self.group = shape, mesh.get_group("tp")
        self.stage = mesh.get_local_rank("pp")
        self.is_first, self.is_last = self.stage == 0, self.stage == shape.pipeline - 1
        self.vocab = shape.vocab // shape.tensor
        self.first_word = self.vocab * mesh.get_local_rank("tp")
        self.blocks = nn.ModuleList(Block(shape, self.group) for _ in range(shape.layers // shape.pipeline))
        self.words = nn.Embedding(self.vocab, shape.hidden) if self.is_first else None
        self.norm = nn.RMSNorm(shape.hidden) if self.is_last else None
        self.head = _linear(shape.hidden, self.vocab) if self.is_last else None
        head = shape.hidden // shape.heads
        angle = torch.outer(torch.arange(shape.sequence), 10_000 ** (-torch.arange(0, head, 2) / head)).repeat(1, 2)
        self.register_buffer("cos", angle.cos().to(torch.get_default_dtype()))
        self.register_buffer("sin", angle.sin().to(torch.get_default_dtype()))

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self.words is not None:
            mine = (x >= self.first_word) & (x < self.first_word + self.vocab)
            x = self.words(torch.where(mine, x - self.first_word, 0)) * mine[..., None]
            x = _SumOut.apply(x, self.group)
        for block in self.blocks:
            x = block(x, (self.cos, self.sin))
        if self.norm is None or self.head is None:
            return x
        logits = self.head(_CopyIn.apply(self.norm(x), self.group)).flatten(0, 1)
        return _VocabLoss.apply(logits, targets.flatten(), self.first_word, self.group)


class Neighbours:
    """Sends activations to the next stage and gradients to the one before."""

    def __init__(self, shape: Shape, mesh: DeviceMesh, device: str) -> None:
        self.group, stage = mesh.get_group("pp"), mesh.get_local_rank("pp")
        self.before = stage - 1 if stage else None
        self.after = stage + 1 if stage < shape.pipeline - 1 else None
        self.size, self.device = (shape.microbatch, shape.sequence, shape.hidden), device

    def exchange(
        self, *, forward: torch.Tensor | None = None, backward: torch.Tensor | None = None,
        want_input: bool = False, want_grad: bool = False,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:  # fmt: skip
        """Send what is given, in one batch with what is wanted; return input and gradient."""
        ops, got, grad = [], None, None
        if forward is not None and self.after is not None:
            ops.append(dist.P2POp(dist.isend, forward.detach(), group=self.group, group_peer=self.after))
        if backward is not None and self.before is not None:
            ops.append(dist.P2POp(dist.isend, backward, group=self.group, group_peer=self.before))
        if want_input and self.before is not None:
            got = torch.empty(self.size, device=self.device)
            ops.append(dist.P2POp(dist.irecv, got, group=self.group, group_peer=self.before))
        if want_grad and self.after is not None:
            grad = torch.empty(self.size, device=self.device)
            ops.append(dist.P2POp(dist.irecv, grad, group=self.group, group_peer=self.after))
        if ops:
            for work in dist.batch_isend_irecv(ops):
                work.wait()
        return got, grad


def one_f_one_b(shape: Shape, stage: Stage, near: Neighbours, tokens: torch.Tensor, targets: torch.Tensor) -> None:
    """Run all microbatches forward and backward; gradients add up in the parameters."""
    number, waiting = iter(range(shape.num_microbatches)), deque[tuple[torch.Tensor | None, torch.Tensor]]()

    def forward(given: torch.Tensor | None) -> torch.Tensor:
        microbatch = next(number)
        if given is not None:
            given.requires_grad_()
        x = tokens[microbatch] if given is None else given
        y = stage(x, targets[microbatch])
        waiting.append((given, y))
        return y

    def backward(grad: torch.Tensor | None) -> torch.Tensor | None:
        given, y = waiting.popleft()
        if grad is None:
            (y / shape.num_microbatches).backward()
        else:
            y.backward(grad)
        return None if given is None else given.grad

    warmup = min(shape.pipeline - 1 - stage.stage, shape.num_microbatches)
    steady = shape.num_microbatches - warmup
    for _ in range(warmup):
        given, _ = near.exchange(want_input=True)
        near.exchange(forward=forward(given))
    if steady:
        given, _ = near.exchange(want_input=True)
    for step in range(steady):
        _, grad = near.exchange(forward=forward(given), want_grad=True)
        given, _ = near.exchange(backward=backward(grad), want_input=step < steady - 1)
    for _ in range(warmup):
        _, grad = near.exchange(want_grad=True)
        near.exchange(backward=backward(grad))


def train_step(shape: Shape, device: str = "meta") -> float:
    """Build this rank's part of the model, run one step, and return the seconds of the step."""
    import time

    torch.set_default_dtype(torch.bfloat16)
    mesh = init_device_mesh(
        "cpu", (shape.pipeline, shape.data, shape.tensor), mesh_dim_names=("pp", "dp", "tp")
    )  # fmt: skip
    with torch.device(device):
        stage = Stage(shape, mesh)
        optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-4, foreach=True)
        size = (shape.num_microbatches, shape.microbatch, shape.sequence)
        tokens, targets = torch.zeros(2, *size, dtype=torch.long)
    near, group = Neighbours(shape, mesh, device), mesh.get_group("dp")
    dist.barrier()
    begin = time.perf_counter()
    one_f_one_b(shape, stage, near, tokens, targets)
    works = [
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=group, async_op=True)
        for parameter in stage.parameters()
    ]
    for work in works:
        work.wait()
    optimizer.step()
    dist.barrier()
    return time.perf_counter() - begin
