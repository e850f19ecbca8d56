"""Weights that live on one rank, and how ranks come to call each other."""

from __future__ import annotations

import os
import threading
import warnings
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.distributed import rpc


def start_rpc() -> tuple[int, int]:
    """Join RPC under the name "rank0", "rank1", ...; return this rank and the number of ranks."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    join: Any = rpc.init_rpc
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="You are using a Backend")  # of torch, to torch
        join(f"rank{rank}", rank=rank, world_size=world_size)
    return rank, world_size


@dataclass(frozen=True)
class Update:
    """One gradient that was used.

    Attributes:
        sequence: 0 for the first gradient the server used, 1 for the next, and so on.
        worker: Whose it was.
        version_read: Version of the weights it was computed from.
        version_applied: Version of the weights it was subtracted from; the staleness is the difference.
    """

    sequence: int
    worker: int
    version_read: int
    version_applied: int


class Server:
    """Weights that live on one rank; what all servers of the lessons have in common."""

    def __init__(self, weight: Tensor, num_workers: int, lr: float) -> None:
        """Keep a copy of the weights.

        Args:
            weight: Where to begin, shape (N,).
            num_workers: Workers are numbered from 0.
            lr: Learning rate.
        """
        self.weight, self.num_workers, self.lr = weight.clone(), num_workers, lr
        self.version = 0
        self.updates: list[Update] = []
        self.lock = threading.Lock()

    def pull(self) -> tuple[int, Tensor]:
        """Return the version and a copy of the weights."""
        with self.lock:
            return self.version, self.weight.clone()

    def leave(self, worker: int) -> None:
        """Take note that a worker will push no more."""
