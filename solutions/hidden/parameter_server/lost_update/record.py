"""Records the runs of `lost_update`: a server that reads and writes its weights without a lock, and one race.

Run it from the repository to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

import random
import re
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import rpc

import labkit
from labkit.servers.server import Server, start_rpc

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "parameter_server" / "lost_update"
PUSHES, APPLY_MS = 4, 1.5
SHOWN, KEPT_BACK = (10.0, 12.5, 24.0, 8.0), (10.9, 21.6, 12.7, 8.9)
_KEPT = ("call", "wait", "clock")


class NoLock(Server):
    """Reads the weights, takes its time, and writes them."""

    def push(self, worker: int, version: int, gradient: Tensor) -> tuple[int, Tensor]:
        """Subtract lr times the gradient from the weights as they were when the push came in."""
        weight, read = self.weight.clone(), self.version
        with labkit.span(f"rank {worker}: read {read}"):
            time.sleep(APPLY_MS / 1000)
        self.weight, self.version = weight - self.lr * gradient, read + 1
        return self.version, self.weight.clone()


def work(server: Any, worker: int, milliseconds: float) -> None:
    """Push some gradients, each after so many milliseconds."""
    version, _ = server.rpc_sync().pull()
    for _ in range(PUSHES):
        with labkit.span(f"from {version}"):
            time.sleep(milliseconds / 1000)
        version, _ = server.rpc_sync().push(worker, version, torch.ones(1))


def train(milliseconds: tuple[float, ...]) -> int:
    """Return, on rank 0, how many gradients are in the weights when every worker has pushed all of its own."""
    rank, world_size = start_rpc()
    found = 0
    if rank == 0:
        server = rpc.RRef(NoLock(torch.zeros(1), world_size - 1, -1.0))
        calls = [
            rpc.rpc_async(f"rank{peer}", work, args=(server, peer, milliseconds[peer - 1]))
            for peer in range(1, world_size)
        ]
        for call in calls:
            call.wait()
        found = int(server.local_value().weight)
    rpc.shutdown()
    return found


def record(milliseconds: tuple[float, ...]) -> tuple[int, labkit.Timeline]:
    """Return how many gradients arrived in the weights, and the run, without what a learner does not look at."""
    run = labkit.run(train, milliseconds, on=labkit.virtual(len(milliseconds) + 1), init=False, echo=False)
    timeline = run.timeline
    assert timeline is not None
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return run.results[0], timeline


def lost(timeline: labkit.Timeline) -> list[tuple[int, int]]:
    """Return rank and version of each push whose gradient a later one, that read the same version, wrote over."""
    reads: dict[int, list[tuple[int, int]]] = {}
    for span in timeline.spans(rank=0).rows():
        if found := re.fullmatch(r"rank (\d+): read (\d+)", span.name):
            reads.setdefault(int(found[2]), []).append((span.end_ns, int(found[1])))
    return [(rank, version) for version, pushes in reads.items() for _, rank in sorted(pushes)[:-1]]


def drawn(draw: random.Random) -> tuple[labkit.Timeline, dict[str, Any]]:
    """Return a student's own run, and what its key says: of drawn waits, the first with which one gradient is lost."""
    while True:
        arrived, timeline = record(tuple(draw.randint(80, 250) / 10 for _ in SHOWN))
        losses = lost(timeline)
        if arrived == len(SHOWN) * PUSHES - 1 and len(losses) == 1:
            ((rank, version),) = losses
            cause = "another push read before this one wrote"
            return timeline, {"answers": {"rank": rank, "version": version, "cause": cause}}


if __name__ == "__main__":
    record(SHOWN)[1].save(LABKITS / "recording.json")
    record(KEPT_BACK)[1].save(HERE / "recording.json")
