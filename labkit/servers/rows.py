"""A table whose rows live on several servers, and workers that ask for popular ones."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import rpc

from labkit.servers.server import start_rpc

Place: TypeAlias = Callable[[Tensor], Tensor]
"""Says of each key on which server it lives."""


class RowServer:
    """Some rows of a table, found by their keys."""

    def __init__(self, keys: Tensor, rows: Tensor, lr: float) -> None:
        """Hold these rows.

        Args:
            keys: int64, ascending, shape (R,).
            rows: Row i is that of keys[i], shape (R, D).
            lr: Learning rate.
        """
        self.keys, self.rows, self.lr = keys, rows.clone(), lr
        self.lock, self.served = threading.Lock(), 0

    def pull(self, keys: Tensor) -> Tensor:
        """Return the rows of these keys, in this order."""
        with self.lock:
            self.served += len(keys)
            return self.rows[torch.searchsorted(self.keys, keys)]

    def push(self, keys: Tensor, gradients: Tensor) -> int:
        """Subtract lr times each gradient from its key's row; return how many rows changed."""
        with self.lock:
            self.served += len(keys)
            self.rows.index_add_(0, torch.searchsorted(self.keys, keys), gradients, alpha=-self.lr)
        return len(keys)


def popular_keys(num_draws: int, num_keys: int, seed: int) -> Tensor:
    """Return drawn keys, int64: key k is drawn 1/(k+1) as often as key 0."""
    share = 1 / torch.arange(1, num_keys + 1, dtype=torch.float64)
    return torch.multinomial(share, num_draws, replacement=True, generator=torch.Generator().manual_seed(seed))


def circle(num_servers: int, points_each: int = 64) -> tuple[Tensor, Tensor]:
    """Return the points of all servers on a circle of 2**32, ascending, and whose each is; a new server moves none."""
    drawn = [
        torch.randint(0, 2**32, (points_each,), generator=torch.Generator().manual_seed(1 + server))
        for server in range(num_servers)
    ]
    points, order = torch.cat(drawn).sort()
    return points, torch.arange(num_servers).repeat_interleave(points_each)[order]


_held: dict[int, RowServer] = {}
"""What each rank holds; virtual ranks share this module."""


def _here(rank: int) -> RowServer:
    return _held[rank]


def loads(
    pull_rows: Any, push_rows: Any, rule: Place, num_servers: int, num_steps: int, num_keys: int
) -> tuple[int, float]:
    """Return the rows this rank was asked for, and the seconds it took it to ask: the first ranks are servers.

    Args:
        pull_rows: pull_rows(servers, place, keys).
        push_rows: push_rows(servers, place, keys, gradients).
        rule: Where keys live.
        num_servers: Of all ranks; the others are workers.
        num_steps: Batches of each worker, 1024 popular keys each.
        num_keys: Rows of the table.
    """
    rank = int(os.environ["RANK"])
    if rank < num_servers:
        (held,) = torch.where(rule(torch.arange(num_keys)) == rank)
        _held[rank] = RowServer(held, torch.zeros(len(held), 256), 0.1)
    start_rpc()
    begin = took = time.perf_counter()
    if rank >= num_servers:
        servers = [rpc.remote(f"rank{number}", _here, args=(number,)) for number in range(num_servers)]
        for step in range(num_steps):
            keys = popular_keys(1024, num_keys, seed=100 * rank + step)
            push_rows(servers, rule, keys, torch.ones_like(pull_rows(servers, rule, keys)))
        took = time.perf_counter()
    rpc.shutdown()
    return _held[rank].served if rank < num_servers else 0, took - begin


# ---- a recommender

_NUM_KEYS, _DIM = 2000, 16


class Recommender(nn.Module):
    """A score for a list of items: the mean of their rows through two layers."""

    def __init__(self) -> None:
        """Make the layers, the same every time."""
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(_DIM, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, rows_BKD: Tensor) -> Tensor:  # noqa: N803
        """Return one number for each sample, shape (B,)."""
        scores: Tensor = self.layers(rows_BKD.mean(1)).squeeze(1)
        return scores


def _first_rows(keys: Tensor) -> Tensor:
    return 0.1 * torch.sin(7.0 * keys[:, None] + torch.arange(_DIM))


def samples(rank: int, step: int) -> tuple[Tensor, Tensor]:
    """Return a batch: four keys a sample, and what is hidden in them, the mean taste of the items."""
    keys = popular_keys(32 * 4, _NUM_KEYS, seed=1000 * rank + step).view(32, 4)
    return keys, torch.sin(keys.float()).mean(1)


def train_recommender(
    hybrid_step: Any, pull_rows: Any, push_rows: Any, rule: Place, num_servers: int, num_steps: int
) -> list[float]:
    """Return a trainer's losses, on a server's rank none: the first ranks hold the table, the others train."""
    rank, world_size = start_rpc()
    trainers = dist.new_group(list(range(num_servers, world_size)))
    losses = []
    if rank < num_servers:
        (keys,) = torch.where(rule(torch.arange(_NUM_KEYS)) == rank)
        _held[rank] = RowServer(keys, _first_rows(keys), lr=30.0)
    dist.barrier()  # all rows are there
    if rank >= num_servers:
        servers = [rpc.remote(f"rank{number}", _here, args=(number,)) for number in range(num_servers)]
        pull, push = partial(pull_rows, servers, rule), partial(push_rows, servers, rule)
        model = Recommender()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
        for step in range(num_steps):
            dist.barrier(trainers)  # nobody reads rows of the next step before all have pushed theirs
            keys, targets = samples(rank, step)
            losses.append(hybrid_step(model, optimizer, pull, push, keys, targets, trainers).item())
            dist.barrier(trainers)
    rpc.shutdown()
    return losses


def train_alone(ranks: Sequence[int], num_steps: int) -> list[float]:
    """Return the losses of one process with table and layers, on the samples of these ranks together."""
    model, table = Recommender(), nn.Parameter(_first_rows(torch.arange(_NUM_KEYS)))
    optimizer, rows = torch.optim.AdamW(model.parameters(), lr=0.003), torch.optim.SGD([table], lr=30.0)
    losses = []
    for step in range(num_steps):
        keys, targets = (torch.cat(each) for each in zip(*(samples(rank, step) for rank in ranks), strict=True))
        loss = nn.functional.mse_loss(model(table[keys]), targets)
        for each in (optimizer, rows):
            each.zero_grad()
        torch.autograd.backward(loss)
        for each in (optimizer, rows):
            each.step()
        losses.append(loss.item())
    return losses
