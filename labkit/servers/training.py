"""Workers that train with a server at a pace, and what their runs show."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed import rpc

from labkit.launch.rank import span
from labkit.servers.server import Server, Update, start_rpc
from labkit.timeline import Timeline

# ---- something to train: find 20 numbers from noisy samples


def steepness() -> Tensor:
    """Return how steep the loss is in each of the 20 directions."""
    return torch.logspace(0, -1.5, 20)


def loss_of(weight: Tensor) -> float:
    """Return the loss without noise: zero where all 20 numbers are 1."""
    return float((0.5 * steepness() * (weight - 1).square()).sum())


def gradient_of(weight: Tensor, worker: int, step: int) -> Tensor:
    """Return the gradient of one worker's samples: the true one, and noise drawn from worker and step."""
    draw = torch.Generator().manual_seed(1000 * worker + step)
    return steepness() * (weight - 1) + 0.05 * torch.randn(20, generator=draw)


def one_process(num_steps: int, num_workers: int, lr: float) -> float:
    """Return the loss after one process took that many steps with the mean of all workers' gradients."""
    weight = torch.zeros(20)
    for step in range(num_steps):
        weight -= lr * torch.stack([gradient_of(weight, worker, step) for worker in range(num_workers)]).mean(0)
    return loss_of(weight)


# ---- workers


@dataclass(frozen=True)
class Pace:
    """How long workers take for a gradient.

    Attributes:
        seconds: What a worker takes.
        slow: Worker -> how many times as long it takes, always.
        stalls: Share of steps, drawn from worker and step, in which a worker takes four times as long.
    """

    seconds: float = 0.010
    slow: tuple[tuple[int, float], ...] = ()
    stalls: float = 0.0

    def of(self, worker: int, step: int) -> float:
        """Return the seconds of one worker's step."""
        draw = torch.Generator().manual_seed(7919 * worker + step)
        stalled = torch.rand((), generator=draw).item() < self.stalls
        return self.seconds * dict(self.slow).get(worker, 1.0) * (4.0 if stalled else 1.0)


@dataclass(frozen=True)
class Seen:
    """What a worker saw when one of its pushes was answered: when, which version, how good its weights were."""

    seconds: float
    version: int
    loss: float


@dataclass(frozen=True)
class Trained:
    """What a training run left behind: what workers saw, in order of time, and the server's record."""

    seen: list[Seen]
    updates: list[Update]

    def staleness(self, worker: int | None = None) -> list[int]:
        """Return the staleness of each gradient that was used, of one worker or of all."""
        return [each.version_applied - each.version_read for each in self.updates if worker in (None, each.worker)]

    def loss_at(self, *, seconds: float | None = None, version: int = 0) -> float:
        """Return the last loss that a worker saw before this time, or else when this version was reached."""
        before = [
            each for each in self.seen if (each.version <= version if seconds is None else each.seconds <= seconds)
        ]
        return max(before, key=lambda each: each.version).loss


def work(server: Any, worker: int, until: int, pace: Pace) -> list[Seen]:
    """Pull, compute and push until the weights have reached a version; return what was seen after each push."""
    version, weight = server.rpc_sync().pull()
    seen, begin = list[Seen](), time.perf_counter()
    while version < until:
        with span(f"version {version}"):
            gradient = gradient_of(weight, worker, len(seen))
            time.sleep(pace.of(worker, len(seen)))
        version, weight = server.rpc_sync().push(worker, version, gradient)
        seen.append(Seen(time.perf_counter() - begin, version, loss_of(weight)))
    server.rpc_sync().leave(worker)
    return seen


def train(make_server: Callable[[Tensor, int], Server], until: int, pace: Pace) -> Trained | None:
    """Train until a version is reached: rank 0 has the server, every other rank is a worker. Rank 0 returns the record.

    Args:
        make_server: Called with the first weights and the number of workers.
        until: Version at which workers stop.
        pace: How long a gradient takes.
    """
    rank, world_size = start_rpc()
    trained = None
    if rank == 0:
        server = rpc.RRef(make_server(torch.zeros(20), world_size - 1))
        calls = [
            rpc.rpc_async(f"rank{peer}", work, args=(server, peer - 1, until, pace)) for peer in range(1, world_size)
        ]
        seen = [each for call in calls for each in call.wait()]
        trained = Trained(sorted(seen, key=lambda each: each.seconds), server.local_value().updates)
    rpc.shutdown()
    return trained


def waiting_share(timeline: Timeline) -> float:
    """Return the share of workers' time (ranks 1 and up) in which they compute nothing; the server is not counted.

    A worker's time goes from its first gradient to its last; it does not wait for others that are still at work.
    """
    computed = there = 0
    for rank in range(1, timeline.num_ranks):
        spans = [each for each in timeline.rows() if each.rank == rank and each.name.startswith("version ")]
        computed += sum(each.duration_ns for each in spans)
        there += max(each.end_ns for each in spans) - min(each.start_ns for each in spans)
    return 1 - computed / there


# ---- large weights, in pieces on several servers


def push_pieces(servers: list[Any], worker: int, num_elements: int, device: str) -> None:
    """Push a gradient in equal pieces, one to every server at the same time, and wait for all answers."""
    piece = torch.zeros(num_elements // len(servers), device=device)
    for answer in [server.rpc_async().push(worker, 0, piece) for server in servers]:
        answer.wait()


def one_server_step(make_server: Any, num_servers: int, num_bytes: int, device: str = "meta") -> float | None:
    """Return, on rank 0, the seconds of one synchronous step: the first ranks are servers, the others workers."""
    rank, world_size = start_rpc()
    took, num_workers = None, world_size - num_servers
    if rank == 0:
        piece = torch.zeros(num_bytes // 4 // num_servers, device=device)
        servers = [
            rpc.remote(f"rank{number}", make_server, args=(piece, num_workers, 0.1)) for number in range(num_servers)
        ]
        for server in servers:
            server.rpc_sync().leave(0)  # any call will do: it comes back when the server has been made
        begin = time.perf_counter()
        calls = [
            rpc.rpc_async(f"rank{num_servers + worker}", push_pieces, args=(servers, worker, num_bytes // 4, device))
            for worker in range(num_workers)
        ]
        for call in calls:
            call.wait()
        took = time.perf_counter() - begin
    rpc.shutdown()
    return took


_laid_out: dict[int, Server] = {}
"""The server of each piece; virtual ranks share this module."""


def _piece(number: int) -> Server:
    return _laid_out[number]


def in_pieces(make_server: Any, step: Any, num_servers: int, num_pieces: int, num_bytes: int) -> float:
    """Return, on a worker, the seconds of one step in pieces: the first ranks are servers, the others workers.

    Args:
        make_server: Makes the server of one piece; its push answers with (version, weights).
        step: step(pieces, worker, version, gradients) pushes all pieces and returns their new weights.
        num_servers: Servers; pieces are dealt out to them in turn.
        num_pieces: Pieces.
        num_bytes: Of all weights together.
    """
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    piece = torch.zeros(num_bytes // 4 // num_pieces, device="meta")
    for number in range(rank, num_pieces if rank < num_servers else 0, num_servers):
        _laid_out[number] = make_server(piece, world_size - num_servers, 0.1)
    start_rpc()
    begin = took = time.perf_counter()
    if rank >= num_servers:
        pieces = [rpc.remote(f"rank{number % num_servers}", _piece, args=(number,)) for number in range(num_pieces)]
        for each in pieces:
            each.rpc_sync().leave(0)  # any call will do: it comes back when the piece is there
        begin = time.perf_counter()
        step(pieces, rank - num_servers, 0, [torch.zeros_like(piece) for _ in pieces])
        took = time.perf_counter()
    rpc.shutdown()
    return took - begin


def one_ring(num_bytes: int) -> float:
    """Return the seconds of one all_reduce of that many bytes."""
    tensor = torch.empty(num_bytes // 4, device="meta")
    begin = time.perf_counter()
    torch.distributed.all_reduce(tensor)
    return time.perf_counter() - begin


def ring_seconds(num_bytes: float, world_size: int, latency_s: float, bandwidth_Bps: float) -> float:  # noqa: N803
    """Return the time of a ring all_reduce, as in lesson 02."""
    steps, chunk_bytes = 2 * world_size - 2, num_bytes / world_size
    return steps * (latency_s + chunk_bytes / bandwidth_Bps)


# ---- what goes wrong


def crowd(make_server: Callable[[Tensor, int, float], Server], num_pushes: int) -> int | None:
    """Return, on rank 0, what the weights came to when every other rank pushed that many ones as fast as it could."""
    rank, world_size = start_rpc()
    counted = None
    if rank == 0:
        server = rpc.RRef(make_server(torch.zeros(100_000), world_size - 1, -1.0))
        calls = [rpc.rpc_async(f"rank{peer}", _count_up, args=(server, num_pushes)) for peer in range(1, world_size)]
        for call in calls:
            call.wait()
        counted = int(server.local_value().weight[0].item())
    rpc.shutdown()
    return counted


def _count_up(server: Any, num_pushes: int) -> None:
    for _ in range(num_pushes):
        server.rpc_sync().push(0, 0, torch.ones(100_000))


def one_goes(make_server: Callable[[Tensor, int], Server]) -> None:
    """Train while the last worker goes after one version; the others want three. Rank 0 prints what they saw last."""
    rank, world_size = start_rpc()
    if rank == 0:
        server = rpc.RRef(make_server(torch.zeros(20), world_size - 1))
        calls = [
            rpc.rpc_async(f"rank{peer}", work, args=(server, peer - 1, 1 if peer == world_size - 1 else 3, Pace()))
            for peer in range(1, world_size)
        ]
        print("versions seen at the end:", [call.wait()[-1].version for call in calls])
    rpc.shutdown()
