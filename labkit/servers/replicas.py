"""A primary and its backup, called by name, and a run in which the primary dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed import rpc
from torch.futures import Future

from labkit.servers.server import start_rpc

_held: dict[str, Any] = {}
"""The server that each rank holds; virtual ranks share this module."""
_done: list[int] = []


def hold(server: Any) -> None:
    """Let this rank answer pushes with this server."""
    _held[os.environ["RANK"]] = server


@rpc.functions.async_execution  # type: ignore[untyped-decorator]
def push_here(worker: int, number: int, gradient: Tensor) -> Any:
    """Push a gradient to the server that this rank holds."""
    return _held[os.environ["RANK"]].push(worker, number, gradient)


@dataclass(frozen=True)
class Remote:
    """The server on a rank, called by the rank's name.

    Attributes:
        name: "rank1", for example.
    """

    name: str

    def push(self, worker: int, number: int, gradient: Tensor) -> Future[int]:
        """Push a gradient there; return a future of the answer, which raises RuntimeError if none can come."""
        future: Future[int] = rpc.rpc_async(self.name, push_here, args=(worker, number, gradient))
        return future


def _say_done(worker: int) -> None:
    _done.append(worker)


def survive(
    make_replica: Callable[..., Any], push_safely: Any, gradients: list[list[Tensor]], dies_after_s: float,
    kill: bool = False,
) -> Any:  # fmt: skip
    """Let the primary (rank 0) die while workers push; its backup is rank 1.

    Args:
        make_replica: Called on ranks 0 and 1 with weights, number of workers, learning rate and, on rank 0, the backup.
        push_safely: push_safely(replicas, worker, number, gradient) returns the place of who acknowledged.
        gradients: Of each worker (ranks 2 and up).
        dies_after_s: When the primary dies.
        kill: Whether it is a process that is killed, or else (and where there is no fork) a rank that leaves RPC
            without a word.

    Returns:
        On rank 1, the backup, its version and weights; on a worker, how many of its gradients each replica
        acknowledged; on rank 0 nothing.
    """
    rank = int(os.environ["RANK"])
    start = (torch.zeros_like(gradients[0][0]), len(gradients), -1.0)
    if rank == 0:
        # A child is killed: labkit.run ends all ranks if one of them dies.
        primary = os.fork() if kill and hasattr(os, "fork") else 0
        if primary:
            os.waitpid(primary, 0)
            return None
        hold(make_replica(*start, Remote("rank1")))
    elif rank == 1:
        _done.clear()
        hold(make_replica(*start))
    start_rpc()
    found: Any = None
    if rank == 0:
        time.sleep(dies_after_s)
        if kill and hasattr(os, "fork"):
            os.kill(os.getpid(), signal.SIGKILL)
    elif rank == 1:
        while len(_done) < len(gradients):
            time.sleep(0.01)
        found = _held["1"].pull()
    else:
        replicas, found = [Remote("rank0"), Remote("rank1")], [0, 0]
        if kill:
            rpc.rpc_sync("rank1", os.getpid)  # the way to the backup is open before the primary dies
        for number, gradient in enumerate(gradients[rank - 2]):
            time.sleep(0.002)
            found[push_safely(replicas, rank - 2, number, gradient)] += 1
        with suppress(RuntimeError):  # once it has heard of all workers the backup leaves, perhaps before it answers
            rpc.rpc_sync("rank1", _say_done, args=(rank - 2,))
    rpc.shutdown(graceful=False)
    return found


def hasty(replica: Any) -> Any:
    """Return a replica that acknowledges at once, and tells its backup of five gradients together.

    Args:
        replica: The class that keeps its promise.
    """

    class Hasty(replica):  # type: ignore[misc]
        def __init__(self, weight: Tensor, num_workers: int, lr: float, backup: Remote | None = None) -> None:
            super().__init__(weight, num_workers, lr)
            self.told, self.later = backup, list[tuple[int, int, Tensor]]()

        @rpc.functions.async_execution  # type: ignore[untyped-decorator]
        def push(self, worker: int, number: int, gradient: Tensor) -> Any:
            answer = super().push(worker, number, gradient)
            self.later.append((worker, number, gradient))
            if self.told and len(self.later) == 5:
                batch, self.later = self.later, []
                for each in batch:
                    self.told.push(*each)
            return answer

    return Hasty
