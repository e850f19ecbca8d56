"""The model that the course trains: a small GPT, and a task made from a seed that it visibly learns in 20 seconds.

Plain PyTorch, as a reader would write it. Shapes: B batch, T tokens, D width, H heads, K width of a head, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY = "0123456789+="
IGNORED = -100  # the target of a token that is given, not learned
SGD: dict[str, Any] = {"momentum": {"lr": 0.2, "momentum": 0.9}, "sgd": {"lr": 0.5}}  # as the GPT learns with it


class Block(nn.Module):
    """Causal attention and an MLP, each with its norm before it and a residual around it."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x_BTD: Tensor) -> Tensor:  # noqa: N803
        """Return the block's output, of the input's shape."""
        x_BTD = x_BTD + self.attention(self.norm1(x_BTD))  # noqa: N806
        out: Tensor = x_BTD + self.down(functional.gelu(self.up(self.norm2(x_BTD))))
        return out

    def attention(self, x_BTD: Tensor) -> Tensor:  # noqa: N803
        """Return what each token gathers from itself and those before it."""
        batch, tokens, width = x_BTD.shape
        q_BHTK, k_BHTK, v_BHTK = (  # noqa: N806
            each.view(batch, tokens, self.num_heads, width // self.num_heads).transpose(1, 2)
            for each in self.qkv(x_BTD).chunk(3, dim=-1)
        )
        mixed_BHTK = functional.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)  # noqa: N806
        mixed: Tensor = self.out(mixed_BHTK.transpose(1, 2).reshape(batch, tokens, width))
        return mixed


class GPT(nn.Module):
    """A small GPT: embeddings, blocks of attention and MLP, a norm, and the embedding once more as output.

    Args:
        num_layers: How many blocks.
        width: Length of a token's vector.
        num_heads: They divide the width.
        num_tokens: The longest sequence.
        seed: Equal seeds give equal weights, whatever was drawn before.
    """

    def __init__(
        self, *, num_layers: int = 2, width: int = 96, num_heads: int = 4, num_tokens: int = 16, seed: int = 0
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(len(VOCABULARY), width)
        self.positions = nn.Embedding(num_tokens, width)
        self.blocks = nn.ModuleList(Block(width, num_heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(width)
        self._draw(torch.Generator().manual_seed(seed), num_layers)

    def _draw(self, generator: torch.Generator, num_layers: int) -> None:
        """Draw the weights as GPT-2 does: those that add to the residual are smaller, the more layers there are."""
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                nn.init.constant_(parameter, 1.0 if "norm" in name and name.endswith("weight") else 0.0)
                continue
            small = name.endswith(("out.weight", "down.weight"))
            spread = 0.08 / (2 * num_layers) ** 0.5 if small else 0.08
            with torch.no_grad():
                parameter.copy_(spread * torch.randn(parameter.shape, generator=generator))

    def forward(self, tokens_BT: Tensor) -> Tensor:  # noqa: N803
        """Return the logits of each next token, shape (B, T, V).

        Args:
            tokens_BT: Numbers of tokens, int64.
        """
        places = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        x_BTD = self.tokens(tokens_BT) + self.positions(places)  # noqa: N806
        for block in self.blocks:
            x_BTD = block(x_BTD)  # noqa: N806
        return functional.linear(self.norm(x_BTD), self.tokens.weight)

    @property
    def num_parameters(self) -> int:
        """How many numbers are learned."""
        return sum(each.numel() for each in self.parameters())


@dataclass(frozen=True)
class Addition:
    """Sums of two numbers, ``41+85=621``: the sum's digits come last to first, as one adds on paper.

    Attributes:
        num_digits: How many digits each number has.
        seed: Equal seeds give equal batches.
    """

    num_digits: int = 2
    seed: int = 0

    def batch(self, step: int, size: int, *, rank: int = 0, world_size: int = 1) -> tuple[Tensor, Tensor]:
        """Return tokens and targets of this rank's share of a step's batch, each of shape (size / world_size, T).

        The shares of all ranks are the batch that one process would get: who trains on them in parallel, learns the
        same.

        Args:
            step: Which batch.
            size: Size of the whole batch; world_size divides it.
            rank: Whose share.
            world_size: How many shares.
        """
        if size % world_size:
            raise ValueError(f"a batch of {size} has no equal shares for {world_size} ranks")
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        pairs = torch.randint(0, 10**self.num_digits, (size, 2), generator=generator)[rank::world_size]
        first, second = pairs.unbind(1)
        plus, equals = (torch.full((len(pairs), 1), VOCABULARY.index(each)) for each in "+=")
        total = self._digits(first + second, self.num_digits + 1).flip(1)
        parts = [self._digits(first, self.num_digits), plus, self._digits(second, self.num_digits), equals, total]
        text = torch.cat(parts, 1)
        targets = text[:, 1:].clone()
        targets[:, : 2 * self.num_digits + 1] = IGNORED
        return text[:, :-1].contiguous(), targets

    def loader(
        self, num_steps: int, size: int, *, rank: int = 0, world_size: int = 1
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of the first steps, as :meth:`batch` returns them."""
        return (self.batch(step, size, rank=rank, world_size=world_size) for step in range(num_steps))

    def _digits(self, numbers: Tensor, count: int) -> Tensor:
        """Return the digits of numbers, first to last, shape (N, count)."""
        powers = 10 ** torch.arange(count - 1, -1, -1)
        return numbers[:, None] // powers % 10


def loss_of(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of the digits that are to be learned, a scalar."""
    return loss_of_logits(model(tokens), targets)


def loss_of_logits(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of the digits that are to be learned, a scalar."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED)


def accuracy(model: nn.Module, task: Addition, *, size: int = 256) -> float:
    """Return the share of sums that the model gets right in every digit, on a batch that no training uses."""
    tokens, targets = task.batch(-1, size)
    with torch.no_grad():
        right = (model(tokens).argmax(-1) == targets) | (targets == IGNORED)
    return float(right.all(1).float().mean())


def optimizer_for(model: nn.Module, lr: float = 3e-3) -> torch.optim.AdamW:
    """Return AdamW over the model's parameters; matrices decay, biases and norms do not."""
    matrices = [each for each in model.parameters() if each.dim() >= 2]
    others = [each for each in model.parameters() if each.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def train(
    model: nn.Module, task: Addition, num_steps: int, *, size: int = 64, lr: float = 3e-3, max_norm: float = 1.0,
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor] = loss_of,
) -> list[float]:  # fmt: skip
    """Return the loss of each step: AdamW with warm-up, gradients clipped by their global norm.

    Args:
        model: A GPT, or what wraps one.
        task: Where batches come from.
        num_steps: How many steps.
        size: Size of a batch.
        lr: The learning rate after warm-up, which takes a tenth of the steps.
        max_norm: The longest a gradient may be; infinite if they are not clipped.
        loss: Of the model, tokens and targets.
    """
    optimizer, losses = optimizer_for(model, lr), []
    for step, (tokens, targets) in enumerate(task.loader(num_steps, size)):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, 10 * (step + 1) / num_steps)
        found = loss(model, tokens, targets)
        optimizer.zero_grad()
        torch.autograd.backward(found)
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        losses.append(found.item())
    return losses


def train_on_ranks(
    model: nn.Module,
    optimizer: Any,
    num_steps: int,
    after_backward: Callable[[], object] | None = None,
    *,
    size: int = 64,
) -> list[float]:
    """Return the loss of each step, its mean over the ranks: each rank trains on its share of every batch.

    Args:
        model: A GPT, wrapped for data parallelism of some kind.
        optimizer: With zero_grad and step.
        num_steps: How many steps.
        after_backward: Called between backward and step, to wait for gradients or clip them.
        size: Size of the whole batch.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    losses = []
    for tokens, targets in Addition().loader(num_steps, size, rank=rank, world_size=world_size):
        loss = loss_of(model, tokens, targets)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        if after_backward is not None:
            after_backward()
        optimizer.step()
        mean = loss.detach() / world_size
        dist.all_reduce(mean)
        losses.append(mean.item())
    return losses


def clip_shards(shards: Iterable[Tensor], max_norm: float, group: dist.ProcessGroup | None = None) -> None:
    """Scale gradients that are sharded over a group's ranks, so that the norm of all is at most max_norm."""
    gradients = [shard.grad for shard in shards if shard.grad is not None]
    squares = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
    dist.all_reduce(squares, group=group)
    for gradient in gradients:
        gradient.mul_((max_norm / (squares.sqrt() + 1e-6)).clamp(max=1.0))


def train_fully_sharded(num_steps: int) -> list[float]:
    """Return the loss of each step of a GPT under torch's own fully_shard, clipped, on CPU ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = GPT()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in (*model.blocks, model):
        fully_shard(block, mesh=mesh)
    parameters = list(model.parameters())
    optimizer = optimizer_for(model)
    return train_on_ranks(model, optimizer, num_steps, lambda: nn.utils.clip_grad_norm_(parameters, 1.0))


class _Embedding(nn.Module):
    """The first thing a GPT does: tokens and their places become vectors."""

    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        self.tokens, self.positions = gpt.tokens, gpt.positions

    def forward(self, tokens_BT: Tensor) -> Tensor:  # noqa: N803
        """Return the vectors, shape (B, T, D)."""
        x_BTD: Tensor = self.tokens(tokens_BT) + self.positions.weight[: tokens_BT.shape[1]]  # noqa: N806
        return x_BTD


def stage_of_gpt(stage: int, num_stages: int, *, num_layers: int = 4) -> nn.Sequential:
    """Return one stage of a GPT, its blocks divided evenly; the output layer has weights of its own.

    Tokens enter stage 0, vectors of shape (B, T, 96) every other; logits leave the last.

    Args:
        stage: Which stage.
        num_stages: How many there are; they divide the layers.
        num_layers: Layers of the whole GPT.
    """
    if num_layers % num_stages:
        raise ValueError(f"{num_layers} blocks do not divide into {num_stages} equal stages")
    gpt, each = GPT(num_layers=num_layers), num_layers // num_stages
    parts: list[nn.Module] = [*gpt.blocks[stage * each : (stage + 1) * each]]
    if stage == 0:
        parts.insert(0, _Embedding(gpt))
    if stage == num_stages - 1:
        head = nn.Linear(gpt.norm.normalized_shape[0], len(VOCABULARY), bias=False)
        with torch.no_grad():
            head.weight.copy_(gpt.tokens.weight)
        parts += [gpt.norm, head]
    return nn.Sequential(*parts)


Step = Callable[[Tensor, Tensor], "Tensor | None"]
"""Runs (tokens, targets) through a pipeline, forward and backward; returns the loss on the last stage."""


def train_stage(
    module: nn.Module, step: Step, num_steps: int, *, group: dist.ProcessGroup | None = None, size: int = 64
) -> list[float]:
    """Return the loss of each step where it is known: one stage of a pipeline trains, clipped by the norm of all.

    Args:
        module: This rank's stage.
        step: Runs a batch through the whole pipeline.
        num_steps: How many steps.
        group: The ranks of the pipeline; None is everybody.
        size: Size of a batch.
    """
    torch.set_num_threads(1)  # stages share a host's cores
    optimizer, losses = optimizer_for(module), []
    for tokens, targets in Addition().loader(num_steps, size):
        optimizer.zero_grad()
        loss = step(tokens, targets)
        clip_shards(module.parameters(), 1.0, group)
        optimizer.step()
        losses += [] if loss is None else [loss.item()]
    return losses


def pipelining_step(module: nn.Module, num_microbatches: int, group: dist.ProcessGroup | None = None) -> Step:
    """Return a step of torch.distributed.pipelining, 1F1B, in which this rank's stage is the module.

    Args:
        module: Made by stage_of_gpt.
        num_microbatches: They divide the batch, and are as many as the stages or more.
        group: The ranks of the pipeline; None is everybody.
    """
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    stage = PipelineStage(module, rank, world_size, torch.device("cpu"), group=group)
    schedule = Schedule1F1B(stage, num_microbatches, loss_fn=loss_of_logits)

    def step(tokens: Tensor, targets: Tensor) -> Tensor | None:
        losses: list[Tensor] = []
        ends: dict[str, Any] = {"target": targets, "losses": losses} if rank == world_size - 1 else {}
        schedule.step(*([tokens.contiguous()] if rank == 0 else []), **ends)  # torch 2.11 compares strides
        return torch.stack(losses).mean().detach() if losses else None

    return step


def train_with_pipelining(num_steps: int, num_microbatches: int = 8) -> list[float]:
    """Return the loss of each step, on the last rank: a GPT under torch.distributed.pipelining, on CPU ranks."""
    module = stage_of_gpt(dist.get_rank(), dist.get_world_size())
    return train_stage(module, pipelining_step(module, num_microbatches), num_steps)


def train_as_ranks(
    make: Callable[[], Any], optimizer: str, num_steps: int, *, rate: float = 1.0, seed: int = 0
) -> list[float]:
    """Return the loss of each step of a GPT whose gradients are compressed; one process plays four ranks in turn.

    Each compresses the gradient of its share of a batch; the mean of what is unpacked is clipped and used.

    Args:
        make: Returns a new compressor, one for each rank, of flat gradients: compress(gradient), decompress(packet).
        optimizer: "adamw", or a key of SGD.
        num_steps, rate, seed: How many steps; the learning rate in times the optimizer's; of weights and batches.
    """
    if optimizer != "adamw" and optimizer not in SGD:
        raise ValueError(f"optimizer {optimizer!r}: choose 'adamw', 'momentum' or 'sgd'")
    model, task, compressors = GPT(seed=seed), Addition(seed=seed), [make() for _ in range(4)]
    parameters: list[Tensor] = list(model.parameters())
    chosen: Any = optimizer_for(model) if optimizer == "adamw" else torch.optim.SGD(parameters, **SGD[optimizer])
    ramp, losses = torch.optim.lr_scheduler.LambdaLR(chosen, lambda at: rate * min(1, 10 * (at + 1) / num_steps)), []
    for step in range(num_steps):
        total, mean = torch.zeros(model.num_parameters), 0.0
        for rank, compressor in enumerate(compressors):
            loss = loss_of(model, *task.batch(step, 64, rank=rank, world_size=4))
            gradients = torch.autograd.grad(loss, parameters)
            total += compressor.decompress(compressor.compress(torch.cat([each.flatten() for each in gradients]))) / 4
            mean += loss.item() / 4
        for parameter, part in zip(parameters, torch.split(total, [each.numel() for each in parameters]), strict=True):
            parameter.grad = part.view_as(parameter)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        chosen.step()
        ramp.step()
        losses.append(mean)
    return losses


def seconds_under_ddp(prepare: Callable[[Any], object] | None = None) -> float:
    """Return how long the fastest of three steps but the first takes: the GPT under torch's DDP, prepared by a hook."""
    ddp = nn.parallel.DistributedDataParallel(GPT())
    _ = prepare and prepare(ddp)
    optimizer, seconds = torch.optim.SGD(ddp.parameters(), lr=0.1), []
    for tokens, targets in Addition().loader(3, 64, rank=dist.get_rank(), world_size=dist.get_world_size()):
        begin = time.perf_counter()
        torch.autograd.backward(loss_of(ddp, tokens, targets))
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])
