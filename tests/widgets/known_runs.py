"""Programs whose ranks wait for a known reason, and the sentences that are right and wrong above their timelines.

What a rank computes is a sleep in virtual time, a few percent longer or shorter by the seed: another seed is the same
program with other noise.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

import labkit
from labkit.errors import LabkitError
from labkit.timeline import Timeline

Works = Callable[..., None]
"""Called with a number of milliseconds, works about so long."""
NAMES_A_RANK = r"^Ranks? .*(last|works)|[Dd]eadlock|still wait"
"""Sentences that blame somebody."""
SILENT = r"^$|^(Ranks are|Every rank is) blocked|^Communication takes|^Computation hides"
"""Sentences that blame nobody."""


@dataclass(frozen=True)
class Known:
    """A program of known kind.

    Attributes:
        kind: "pipeline", "deadlock", "alike", "server", "late", "link" or "noise".
        program: Called on every rank with its Works.
        ranks: How many.
        right: What the sentence must match.
        noise: By how much a stretch of work may be longer or shorter than its mean, as a share of it.
        world: More for labkit.virtual.
    """

    kind: str
    program: Callable[[Works], None]
    ranks: int
    right: str = SILENT
    noise: float = 0.05
    world: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the program's name, in words, and how many ranks run it."""
        return f"{self.program.__name__.strip('_')}_{self.ranks}"


def timeline_of(known: Known, seed: int) -> Timeline:
    """Return the timeline of a run with this noise, to its end or its error."""

    def everywhere() -> None:
        draw = random.Random(1000 * seed + dist.get_rank())

        def works(milliseconds: float) -> None:
            time.sleep(milliseconds / 1e3 * (1 + known.noise * draw.uniform(-1, 1)))

        known.program(works)

    try:
        done = labkit.run(everywhere, on=labkit.virtual(known.ranks, seed=seed, **known.world), echo=False)
    except LabkitError as error:
        timeline = error.timeline
    else:
        timeline = done.timeline
    assert timeline is not None
    return timeline


def _me() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


def _sum(size: int = 1000) -> None:
    dist.all_reduce(torch.ones(size))


def _pass_on(works: Works, takes: Callable[[int], float], back: float) -> None:
    """Take a microbatch through all stages, and back where a backward takes `back` forwards."""
    rank, size = _me()
    value = torch.ones(1000)
    if rank > 0:
        dist.recv(value, rank - 1)
    works(takes(rank))
    if rank < size - 1:
        dist.send(value, rank + 1)
    if not back:
        return
    if rank < size - 1:
        dist.recv(value, rank + 1)
    works(back * takes(rank))
    if rank > 0:
        dist.send(value, rank - 1)


# A staircase is the bubble of a pipeline: no stage is late, and none of them works for the others.


def _one_microbatch(works: Works) -> None:
    _pass_on(works, lambda _: 10, back=2)


def _forward_only(works: Works) -> None:
    for _ in range(4):
        _pass_on(works, lambda _: 10, back=0)


def _one_microbatch_then_a_barrier(works: Works) -> None:
    for _ in range(3):
        _pass_on(works, lambda _: 10, back=1)
        dist.barrier()


def _a_long_stage(works: Works) -> None:
    for _ in range(4):
        _pass_on(works, lambda rank: 30 if rank == 2 else 10, back=0)


def _gpipe(works: Works) -> None:
    rank, size = _me()
    value = torch.ones(1000)
    for _ in range(4):
        if rank > 0:
            dist.recv(value, rank - 1)
        works(10)
        if rank < size - 1:
            dist.isend(value, rank + 1).wait()
    for _ in range(4):
        if rank < size - 1:
            dist.recv(value, rank + 1)
        works(20)
        if rank > 0:
            dist.isend(value, rank - 1).wait()
    _sum()


def _twice_round(works: Works) -> None:
    """Take a microbatch round twice: every stage has two chunks of layers."""
    rank, size = _me()
    value = torch.ones(1000)
    for turn in range(2):
        if rank or turn:
            dist.recv(value, (rank - 1) % size)
        works(10)
        if rank < size - 1 or not turn:
            dist.send(value, (rank + 1) % size)


# A deadlock, or a rank that never comes, is said before anything else.


def _all_receive_first(works: Works) -> None:
    rank, size = _me()
    works(10)
    dist.recv(torch.ones(10), (rank - 1) % size)
    dist.send(torch.ones(10), (rank + 1) % size)


def _orders_differ(works: Works) -> None:
    works(10)
    if _me()[0] == 1:
        dist.broadcast(torch.ones(10), 0)
        _sum()
    else:
        _sum()
        dist.broadcast(torch.ones(10), 0)


def _two_wait_for_each_other(works: Works) -> None:
    rank, _ = _me()
    works(30 if rank == 3 else 10)
    if rank in (1, 2):
        dist.recv(torch.ones(10), 3 - rank)
    dist.barrier()


def _one_leaves_early(works: Works) -> None:
    rank, _ = _me()
    for step in range(4):
        if step == 3 and rank == 2:
            return
        works(10)
        _sum()


def _one_fails(works: Works) -> None:
    rank, _ = _me()
    for step in range(3):
        works(20 if rank == 1 else 10)
        if step == 2 and rank == 1:
            raise ValueError("nan")
        _sum()


def _nobody_sends(works: Works) -> None:
    rank, _ = _me()
    works(10)
    if rank:
        dist.recv(torch.ones(10), rank - 1)
        works(10)


# Several ranks are late together, or early.


def _upper_half_late(works: Works) -> None:
    rank, size = _me()
    for _ in range(5):
        works(15 if rank >= size // 2 else 10)
        _sum()


def _one_early(works: Works) -> None:
    for _ in range(5):
        works(5 if _me()[0] == 1 else 10)
        _sum()


def _each_as_late_as_its_number(works: Works) -> None:
    for _ in range(5):
        works(10 + _me()[0])
        _sum()


# A server that stands between its workers is what they talk to, not what they wait for.


def _serve(works: Works, worker_ms: Callable[[int], float], *, at_once: bool, server_ms: float = 0.0) -> None:
    rank, size = _me()
    value = torch.ones(1000)
    for _ in range(4):
        if rank:
            works(worker_ms(rank))
            dist.send(value, 0)
            dist.recv(value, 0)
            continue
        for worker in range(1, size):
            dist.recv(value, worker)
            works(server_ms)
            if at_once:
                dist.send(value, worker)
        for worker in range(1, size):
            if not at_once:
                dist.send(value, worker)


def _workers_of_a_late_one(works: Works) -> None:
    _serve(works, lambda rank: 30 if rank == 4 else 10, at_once=False)


def _equal_workers(works: Works) -> None:
    _serve(works, lambda _: 10, at_once=True)


def _a_busy_server(works: Works) -> None:
    _serve(works, lambda _: 1, at_once=False, server_ms=10)


def _sum_at_rank_0(works: Works) -> None:
    rank, size = _me()
    value = torch.ones(1_000_000)
    works(0.001)
    if rank:
        dist.send(value, 0)
        dist.recv(value, 0)
        return
    for worker in range(1, size):
        dist.recv(value, worker)
    for worker in range(1, size):
        dist.send(value, worker)


# One rank is late, each time.


def _one_late(works: Works) -> None:
    for _ in range(6):
        works(20 if _me()[0] == 1 else 10)
        _sum()


def _one_a_little_late(works: Works) -> None:
    for _ in range(10):
        works(12 if _me()[0] == 1 else 10)
        _sum()


def _late_to_scatter_and_gather(works: Works) -> None:
    rank, size = _me()
    part, parts = torch.ones(10), [torch.ones(10) for _ in range(size)]
    for _ in range(5):
        works(15 if rank == 1 else 10)
        dist.reduce_scatter(part, parts)
        works(6 if rank == 1 else 3)
        dist.all_gather(parts, part)


def _late_in_a_ring(works: Works) -> None:
    """Pass on by messages: who waits for whom is a chain, and of that nothing is said."""
    rank, size = _me()
    for _ in range(4):
        works(20 if rank == 1 else 10)
        got = torch.ones(100)
        for handle in dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, torch.ones(100), (rank + 1) % size),
                dist.P2POp(dist.irecv, got, (rank - 1) % size),
            ]
        ):
            handle.wait()


def _writes_a_checkpoint(works: Works) -> None:
    """Rank 0 writes a checkpoint in one step of four, so it is late in few."""
    for step in range(8):
        works(30 if _me()[0] == 0 and step % 4 == 3 else 10)
        _sum()


# One link is slow: all wait for bytes, and nobody for a rank.


def _bytes_round(works: Works) -> None:
    rank, size = _me()
    works(0.01)
    value, got = torch.ones(1_000_000), torch.ones(1_000_000)
    for _ in range(size - 1):
        for handle in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, value, (rank + 1) % size), dist.P2POp(dist.irecv, got, (rank - 1) % size)]
        ):
            handle.wait()


def _steps_over_a_slow_link(works: Works) -> None:
    for _ in range(4):
        works(0.2)
        _sum(1_000_000)


# Noise: somebody comes last each time, and each time somebody else.


def _equal_steps(works: Works) -> None:
    for _ in range(6):
        works(10)
        _sum()


def _few_equal_steps(works: Works) -> None:
    for _ in range(2):
        works(10)
        _sum()


def _a_slow_start(works: Works) -> None:
    for step in range(6):
        works(60 if _me()[0] == 1 and not step else 10)
        _sum()


def _in_turn_late(works: Works) -> None:
    rank, size = _me()
    for step in range(2 * size):
        works(20 if step % size == rank else 10)
        _sum()


def _groups_of_two(works: Works) -> None:
    """Sum in pairs, of which one rank is late, and then over all."""
    rank, size = _me()
    pairs = [dist.new_group([first, first + 1]) for first in range(0, size, 2)]
    for _ in range(4):
        works(14 if rank == 1 else 10)
        dist.all_reduce(torch.ones(10), group=pairs[rank // 2])
    _sum()


_DEADLOCK = "^Deadlock: ranks {} wait for each other{}$"
KNOWN = (
    *(Known("pipeline", _one_microbatch, ranks) for ranks in (2, 4, 8)),
    *(Known("pipeline", _forward_only, ranks) for ranks in (2, 4)),
    *(Known("pipeline", _one_microbatch_then_a_barrier, ranks) for ranks in (2, 4)),
    *(Known("pipeline", _gpipe, ranks) for ranks in (2, 4)),
    Known("pipeline", _twice_round, 4),
    Known("pipeline", _a_long_stage, 4),
    Known("deadlock", _all_receive_first, 2, _DEADLOCK.format("0 and 1", "")),
    Known("deadlock", _all_receive_first, 4, _DEADLOCK.format("0, 1, 2 and 3", "")),
    Known("deadlock", _orders_differ, 3, "^Rank 0 calls all_reduce where rank 1 calls broadcast$"),
    Known("deadlock", _two_wait_for_each_other, 4, _DEADLOCK.format("1 and 2", ", the others for them")),
    Known("deadlock", _one_leaves_early, 4, "^Ranks 0, 1 and 3 still wait for rank 2 at the end$"),
    Known("deadlock", _one_fails, 2, "^Rank 0 still waits for rank 1 at the end$"),
    Known("deadlock", _nobody_sends, 4, "^Ranks 1, 2 and 3 still wait for rank 0 at the end$"),
    Known("alike", _upper_half_late, 8, "^Ranks 4, 5, 6 and 7 come last; the others wait .* for them$"),
    Known("alike", _upper_half_late, 4, "^Ranks 2 and 3 come last; the others wait .* for them$"),
    *(Known("alike", _one_early, ranks) for ranks in (4, 8)),
    Known("alike", _each_as_late_as_its_number, 8),
    *(Known("server", _workers_of_a_late_one, ranks) for ranks in (5, 8)),
    Known("server", _equal_workers, 5),
    Known("server", _a_busy_server, 5),
    Known("server", _sum_at_rank_0, 6, "^Rank 0 works; the others are blocked"),
    *(Known("late", _one_late, ranks, "^Rank 1 comes last; ") for ranks in (2, 4, 8)),
    *(Known("late", _one_late, ranks, "^Rank 1 comes last; ", noise=0.2) for ranks in (2, 4)),
    Known("late", _one_a_little_late, 4, "^Rank 1 comes last; "),
    Known("late", _late_to_scatter_and_gather, 4, "^Rank 1 comes last; "),
    Known("late", _late_in_a_ring, 4),
    *(Known("late", _writes_a_checkpoint, ranks) for ranks in (2, 4)),
    Known("link", _bytes_round, 4, world={"slow_links": {(1, 2): 5.0}}),
    Known("link", _bytes_round, 8, world={"slow_links": {(1, 2): 5.0}}),
    Known("link", _steps_over_a_slow_link, 4, world={"slow_links": {(1, 2): 5.0}}),
    *(Known("noise", _equal_steps, ranks, noise=noise) for ranks in (2, 4, 8) for noise in (0.05, 0.4)),
    *(Known("noise", _few_equal_steps, ranks, noise=0.3) for ranks in (2, 4, 8)),
    *(Known("noise", _a_slow_start, ranks) for ranks in (2, 4)),
    *(Known("noise", _in_turn_late, ranks) for ranks in (2, 4)),
    Known("noise", _groups_of_two, 4),
)
