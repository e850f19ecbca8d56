"""What is run for real and in virtual time, by the same function: DDP steps, rings and a pipeline of two stages.

Every function returns the seconds of each of its steps on its rank, by the clock of the world it runs in.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

Made = tuple[nn.Module, torch.Tensor]


class _Transformer(nn.Module):
    """A small language model."""

    def __init__(self, vocabulary: int = 512, width: int = 192, layers: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        out: torch.Tensor = self.head(x)
        return out


def _mlp() -> Made:
    model = nn.Sequential(
        nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
        nn.Linear(1024, 10),
    )  # fmt: skip
    return model, torch.randn(256, 512)


def _convolutional() -> Made:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128 * 64, 10),
    )  # fmt: skip
    return model, torch.randn(32, 3, 32, 32)


def _transformer() -> Made:
    return _Transformer(), torch.randint(0, 512, (8, 96))


MODELS: dict[str, Callable[[], Made]] = {"MLP": _mlp, "convolutions": _convolutional, "transformer": _transformer}


def ddp(model: str, num_steps: int) -> list[float]:
    """Train with DistributedDataParallel; the first two steps are thrown away (buckets are rebuilt)."""
    return _train(model, num_steps, nn.parallel.DistributedDataParallel)


def apart(model: str, num_steps: int) -> list[float]:
    """Train the same, begun together, without exchanging anything: no rank waits for another that was disturbed."""
    return _train(model, num_steps, lambda module: module)


def _train(model: str, num_steps: int, wrap: Callable[[nn.Module], nn.Module]) -> list[float]:
    torch.manual_seed(0)
    module, inputs = MODELS[model]()
    wrapped = wrap(module)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    seconds = []
    for _ in range(num_steps + 2):
        dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad()
        wrapped(inputs).pow(2).mean().backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    return seconds[2:]


def all_reduce(num_bytes: int, num_steps: int, ring: Callable[[torch.Tensor], object] | None = None) -> list[float]:
    """All-reduce a tensor, with torch's own call or a ring of messages; the first is thrown away."""
    tensor = torch.zeros(num_bytes // 4)
    call = ring or dist.all_reduce
    seconds = []
    for _ in range(num_steps + 1):
        dist.barrier()
        begin = time.perf_counter()
        call(tensor)
        seconds.append(time.perf_counter() - begin)
    return seconds[1:]


def ring(tensor: torch.Tensor) -> None:
    """All-reduce in place with 2(N-1) messages to the next rank."""
    rank, size = dist.get_rank(), dist.get_world_size()
    chunks = list(tensor.chunk(size))
    got = torch.empty_like(chunks[0])
    for step in range(2 * (size - 1)):
        out, into = chunks[(rank - step) % size], chunks[(rank - step - 1) % size]
        first_half = step < size - 1
        ops = [
            dist.P2POp(dist.isend, out, (rank + 1) % size),
            dist.P2POp(dist.irecv, got if first_half else into, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        if first_half:
            into += got


def pipeline(num_microbatches: int, num_steps: int) -> list[float]:
    """Train two stages, microbatches all forwards and then all backwards (GPipe); the first step is thrown away."""
    torch.manual_seed(0)
    rank, width, rows = dist.get_rank(), 768, 128
    stage = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(3)))
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.01)
    data = torch.randn(rows, width)
    seconds = []
    for _ in range(num_steps + 1):
        dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad()
        kept = []
        for _ in range(num_microbatches):
            inputs = data.clone().requires_grad_()
            if rank == 1:
                inputs = torch.empty(rows, width)
                dist.recv(inputs, 0)
                inputs.requires_grad_()
            out = stage(inputs)
            kept.append((inputs, out))
            if rank == 0:
                dist.send(out.detach(), 1)
        for inputs, out in kept:
            grad = torch.empty(rows, width)
            if rank == 0:
                dist.recv(grad, 1)
                out.backward(grad)
            else:
                out.pow(2).mean().backward()
                assert inputs.grad is not None
                dist.send(inputs.grad, 0)
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    return seconds[1:]
