"""Programs whose ranks meet in collectives: one of them is late, or several, or each time another one."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.widgets.known_messages import Works


def _me() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


def _sum(size: int = 1000) -> None:
    dist.all_reduce(torch.ones(size))


# One rank is late, each time.


def one_late(works: Works) -> None:
    for _ in range(6):
        works(20 if _me()[0] == 1 else 10)
        _sum()


def one_a_little_late(works: Works) -> None:
    for _ in range(10):
        works(12 if _me()[0] == 1 else 10)
        _sum()


def late_to_scatter_and_gather(works: Works) -> None:
    rank, size = _me()
    part, parts = torch.ones(10), [torch.ones(10) for _ in range(size)]
    for _ in range(5):
        works(15 if rank == 1 else 10)
        dist.reduce_scatter(part, parts)
        works(6 if rank == 1 else 3)
        dist.all_gather(parts, part)


def late_with_sharded_layers(works: Works) -> None:
    """Gather each layer, compute, scatter its gradient: to the first gather of a step all come together."""
    rank, size = _me()
    part, parts = torch.ones(100), [torch.ones(100) for _ in range(size)]
    for _ in range(3):
        for _ in range(4):
            dist.all_gather(parts, part)
            works(13 if rank == 3 else 10)
        for _ in range(4):
            works(26 if rank == 3 else 20)
            dist.reduce_scatter(part, parts)


def late_with_buckets(works: Works) -> None:
    for _ in range(4):
        handles = []
        for _ in range(4):
            works(8 if _me()[0] == 2 else 5)
            handles.append(dist.all_reduce(torch.ones(10_000), async_op=True))
        for handle in handles:
            handle.wait()


def late_to_all_to_all(works: Works) -> None:
    rank, size = _me()
    for _ in range(4):
        works(15 if rank == 1 else 10)
        dist.all_to_all_single(torch.ones(8 * size), torch.ones(8 * size))
        works(3)


def rank_0_alone_first(works: Works) -> None:
    """Rank 0 loads a batch for all, and then all work."""
    for _ in range(5):
        if not _me()[0]:
            works(8)
        dist.broadcast(torch.ones(1000), 0)
        works(5)
        _sum()


# Several ranks are late together, or early.


def upper_half_late(works: Works) -> None:
    rank, size = _me()
    for _ in range(5):
        works(15 if rank >= size // 2 else 10)
        _sum()


def two_late(works: Works) -> None:
    for _ in range(6):
        works(16 if _me()[0] in (1, 5) else 10)
        _sum()


def two_late_by_different_times(works: Works) -> None:
    for _ in range(6):
        works({2: 16, 6: 20}.get(_me()[0], 10))
        _sum()


def one_early(works: Works) -> None:
    for _ in range(5):
        works(5 if _me()[0] == 1 else 10)
        _sum()


def each_as_late_as_its_number(works: Works) -> None:
    for _ in range(5):
        works(10 + _me()[0])
        _sum()


# Somebody comes last each time, and each time somebody else, or seldom.


def equal_steps(works: Works) -> None:
    for _ in range(6):
        works(10)
        _sum()


def few_equal_steps(works: Works) -> None:
    for _ in range(2):
        works(10)
        _sum()


def a_slow_start(works: Works) -> None:
    for step in range(6):
        works(60 if _me()[0] == 1 and not step else 10)
        _sum()


def in_turn_late(works: Works) -> None:
    rank, size = _me()
    for step in range(2 * size):
        works(20 if step % size == rank else 10)
        _sum()


def late_from_the_middle_on(works: Works) -> None:
    for step in range(10):
        works(20 if _me()[0] == 2 and step >= 5 else 10)
        _sum()


def two_late_by_turns(works: Works) -> None:
    for step in range(8):
        works(20 if _me()[0] == (1 if step % 2 else 2) else 10)
        _sum()


def writes_a_checkpoint(works: Works) -> None:
    """Rank 0 writes a checkpoint in one step of four, so it is late in few."""
    for step in range(8):
        works(30 if _me()[0] == 0 and step % 4 == 3 else 10)
        _sum()


def one_long_checkpoint(works: Works) -> None:
    """Rank 0 writes a checkpoint once, for longer than all steps take."""
    for step in range(6):
        works(70 if _me()[0] == 0 and step == 3 else 10)
        _sum()


def loads_late_at_times(works: Works) -> None:
    """Rank 3 waits for its data in one step of four."""
    for step in range(8):
        works(50 if _me()[0] == 3 and step % 4 == 0 else 12)
        _sum()


def two_faults_at_once(works: Works) -> None:
    """Rank 2 is always late, and rank 5 once, by more."""
    for step in range(6):
        works((30 if _me()[0] == 2 else 10) + (25 if _me()[0] == 5 and step == 3 else 0))
        _sum()


def three_late(works: Works) -> None:
    for _ in range(5):
        works(30 if _me()[0] in (1, 4, 6) else 10)
        _sum()


def groups_of_two(works: Works) -> None:
    """Sum in pairs, of which one rank is late, and then over all."""
    rank, size = _me()
    pairs = [dist.new_group([first, first + 1]) for first in range(0, size, 2)]
    for _ in range(4):
        works(14 if rank == 1 else 10)
        dist.all_reduce(torch.ones(10), group=pairs[rank // 2])
    _sum()


# All wait for bytes, or for nothing.


def steps_over_a_slow_link(works: Works) -> None:
    for _ in range(4):
        works(0.05)
        _sum(200_000)


def sums_alone(works: Works) -> None:
    for _ in range(5):
        works(0)
        _sum(100_000)


def hidden_sums(works: Works) -> None:
    for _ in range(4):
        handles = []
        for _ in range(4):
            works(5)
            handles.append(dist.all_reduce(torch.ones(10_000), async_op=True))
        for handle in handles:
            handle.wait()
