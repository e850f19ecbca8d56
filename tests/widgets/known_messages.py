"""Programs whose ranks wait for messages: stages of a pipeline, a server and its workers, a ring, a tree, deadlocks."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

Works = Callable[..., None]
"""Called with a number of milliseconds, works about so long."""


def _me() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


def _sum(size: int = 1000) -> None:
    dist.all_reduce(torch.ones(size))


# Stages of a pipeline: no stage is late, and none of them works for the others.


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


def one_microbatch(works: Works) -> None:
    _pass_on(works, lambda _: 10, back=2)


def forward_only(works: Works) -> None:
    for _ in range(4):
        _pass_on(works, lambda _: 10, back=0)


def one_microbatch_then_a_barrier(works: Works) -> None:
    for _ in range(3):
        _pass_on(works, lambda _: 10, back=1)
        dist.barrier()


def a_long_stage(works: Works) -> None:
    for _ in range(4):
        _pass_on(works, lambda rank: 30 if rank == 2 else 10, back=0)


def gpipe(works: Works) -> None:
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


def one_forward_one_backward(works: Works) -> None:
    rank, size = _me()
    value = torch.ones(1000)

    def forward() -> None:
        if rank:
            dist.recv(value, rank - 1)
        works(5)
        if rank < size - 1:
            dist.isend(value.clone(), rank + 1)

    def backward() -> None:
        if rank < size - 1:
            dist.recv(value, rank + 1)
        works(10)
        if rank:
            dist.isend(value.clone(), rank - 1)

    warmup = size - 1 - rank
    for _ in range(warmup):
        forward()
    for _ in range(6 - warmup):
        forward()
        backward()
    for _ in range(warmup):
        backward()


def twice_round(works: Works) -> None:
    """Take a microbatch round twice: every stage has two chunks of layers."""
    rank, size = _me()
    value = torch.ones(1000)
    for turn in range(2):
        if rank or turn:
            dist.recv(value, (rank - 1) % size)
        works(10)
        if rank < size - 1 or not turn:
            dist.send(value, (rank + 1) % size)


def two_pipelines(works: Works) -> None:
    """Two replicas of a pipeline, whose stages sum their gradients in pairs."""
    rank, size = _me()
    stages = size // 2
    pairs = [dist.new_group([stage, stage + stages]) for stage in range(stages)]
    stage, value = rank % stages, torch.ones(100)
    for _ in range(2):
        for _ in range(3):
            if stage:
                dist.recv(value, rank - 1)
            works(10)
            if stage < stages - 1:
                dist.send(value, rank + 1)
        for _ in range(3):
            if stage < stages - 1:
                dist.recv(value, rank + 1)
            works(10)
            if stage:
                dist.send(value, rank - 1)
        dist.all_reduce(torch.ones(10), group=pairs[stage])


# A deadlock, or a rank that never comes, is said before anything else.


def all_receive_first(works: Works) -> None:
    rank, size = _me()
    works(10)
    dist.recv(torch.ones(10), (rank - 1) % size)
    dist.send(torch.ones(10), (rank + 1) % size)


def all_send_first(works: Works) -> None:
    rank, size = _me()
    works(5)
    value = torch.ones(3_000_000)  # more than any buffer takes
    dist.send(value, (rank + 1) % size)
    dist.recv(value, (rank - 1) % size)


def all_wait_for_what_nobody_sent(works: Works) -> None:
    rank, size = _me()
    works(5)
    handle = dist.irecv(torch.ones(3), (rank - 1) % size)
    works(3)
    assert handle is not None
    handle.wait()


def orders_differ(works: Works) -> None:
    works(10)
    if _me()[0] == 1:
        dist.broadcast(torch.ones(10), 0)
        _sum()
    else:
        _sum()
        dist.broadcast(torch.ones(10), 0)


def two_wait_for_each_other(works: Works) -> None:
    rank, _ = _me()
    works(30 if rank == 3 else 10)
    if rank in (1, 2):
        dist.recv(torch.ones(10), 3 - rank)
    dist.barrier()


def one_leaves_early(works: Works) -> None:
    rank, _ = _me()
    for step in range(4):
        if step == 3 and rank == 2:
            return
        works(10)
        _sum()


def one_skips_the_barrier(works: Works) -> None:
    works(5)
    if _me()[0] != 1:
        dist.barrier()


def one_fails(works: Works) -> None:
    rank, _ = _me()
    for step in range(3):
        works(20 if rank == 1 else 10)
        if step == 2 and rank == 1:
            raise ValueError("nan")
        _sum()


def nobody_sends(works: Works) -> None:
    rank, _ = _me()
    works(10)
    if rank:
        dist.recv(torch.ones(10), rank - 1)
        works(10)


def forgets_to_send(works: Works) -> None:
    works(10)
    if not _me()[0]:
        dist.recv(torch.ones(3), 1)
    dist.barrier()


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


def workers_of_a_late_one(works: Works) -> None:
    _serve(works, lambda rank: 30 if rank == 4 else 10, at_once=False)


def equal_workers(works: Works) -> None:
    _serve(works, lambda _: 10, at_once=True)


def a_busy_server(works: Works) -> None:
    _serve(works, lambda _: 1, at_once=False, server_ms=10)


def sum_at_rank_0(works: Works) -> None:
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


def who_comes_first_is_served(works: Works) -> None:
    rank, size = _me()
    value = torch.ones(1000)
    for _ in range(4 if rank else 4 * (size - 1)):
        worker = dist.recv(value) if not rank else 0
        works(10 * rank or 1)
        if rank:
            dist.send(value, 0)
            dist.recv(value, 0)
        else:
            dist.send(value, worker)


# Chains of messages: who waits for whom is no habit that a sentence could tell.


def late_in_a_ring(works: Works) -> None:
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


def round_the_ring(works: Works) -> None:
    """Do the same at the same time: nobody waits for anybody."""
    rank, size = _me()
    for _ in range(4):
        works(1)
        got = torch.ones(1000)
        for handle in dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, torch.ones(1000), (rank + 1) % size),
                dist.P2POp(dist.irecv, got, (rank - 1) % size),
            ]
        ):
            handle.wait()


def bytes_round(works: Works) -> None:
    rank, size = _me()
    works(0.01)
    value, got = torch.ones(200_000), torch.ones(200_000)
    for _ in range(size - 1):
        for handle in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, value, (rank + 1) % size), dist.P2POp(dist.irecv, got, (rank - 1) % size)]
        ):
            handle.wait()


def odd_ranks_work_longer(works: Works) -> None:
    """Even ranks wait for their neighbours, in messages, each for another one."""
    rank, _ = _me()
    for _ in range(5):
        works(20 if rank % 2 else 10)
        if rank % 2:
            dist.send(torch.ones(10), rank - 1)
        else:
            dist.recv(torch.ones(10), rank + 1)


def up_a_tree(works: Works) -> None:
    rank, size = _me()
    value, apart = torch.ones(1000), 1
    works(5)
    while apart < size:
        if rank % (2 * apart):
            dist.send(value, rank - apart)
            break
        dist.recv(value, rank + apart)
        works(5)
        apart *= 2
    dist.barrier()
