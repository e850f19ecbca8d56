"""Whatever keeps ranks from going on is told in words: which ranks wait, in what, and for whom.

On this host each kind takes 2 to 5 s to be told (labkit/launch/watchdog.py), on virtual ranks none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import LabkitError, RankFailed, RunTimeout


def _tensor(size: int = 4) -> torch.Tensor:
    return torch.ones(size)


def _nobody_sends(rank: int) -> None:
    if rank == 0:
        dist.recv(_tensor(), src=1)


def _nobody_receives(rank: int) -> None:
    if rank == 0:
        dist.send(_tensor(), dst=1)


def _crossed(rank: int) -> None:
    if rank < 2:
        dist.recv(_tensor(), src=1 - rank)
        dist.send(_tensor(), dst=1 - rank)


def _all_receive_first(rank: int) -> None:
    dist.recv(_tensor(), src=(rank - 1) % 3)
    dist.send(_tensor(), dst=(rank + 1) % 3)


def _another_tag(rank: int) -> None:
    if rank == 0:
        dist.send(_tensor(), dst=1, tag=1)
    elif rank == 1:
        dist.recv(_tensor(), src=0, tag=2)


def _posted_receive(rank: int) -> None:
    if rank == 0:
        work = dist.irecv(_tensor(), src=1)
        assert work is not None
        work.wait()
    dist.barrier()


def _skips_all_reduce(rank: int) -> None:
    if rank != 1:
        dist.all_reduce(_tensor())


def _skips_barrier(rank: int) -> None:
    if rank != 2:
        dist.barrier()


def _returns_early(rank: int) -> None:
    for _ in range(3):
        dist.all_reduce(_tensor())
        if rank == 1:
            return


def _different_collectives(rank: int) -> None:
    if rank == 0:
        dist.all_gather([_tensor(), _tensor(), _tensor()], _tensor())
    else:
        dist.all_reduce(_tensor())


def _another_order(rank: int) -> None:
    calls: list[Callable[[], Any]] = [lambda: dist.all_reduce(_tensor(2)), lambda: dist.broadcast(_tensor(8), src=0)]
    for call in calls if rank else reversed(calls):
        call()


def _different_sources(rank: int) -> None:
    dist.broadcast(_tensor(), src=rank)
    dist.barrier()


def _groups_in_another_order(rank: int) -> None:
    for pair in [[0, 2], [0, 1]] if rank == 2 else [[0, 1], [0, 2]]:
        dist.new_group(pair)


def _group_of_some(rank: int) -> None:
    if rank != 2:
        dist.new_group()


def _key_of_nobody(rank: int) -> None:
    if rank == 0:
        dist.distributed_c10d._get_default_store().get("nobody")


@dataclass(frozen=True)
class Kind:
    """A way to wait for ever, on three ranks.

    Attributes:
        work: What each rank does; it is handed its rank.
        here: What the report says of ranks that are processes of this host.
        virtual: What it says of virtual ranks, () where nobody waits for ever.
    """

    work: Callable[[int], None]
    here: tuple[str, ...]
    virtual: tuple[str, ...]


def _finished(operation: str, *waiting: int, without: int) -> tuple[str, ...]:
    return tuple(f"rank {rank} waits in {operation}, which rank {without} finished without" for rank in waiting)


KINDS = {
    "a receive of what nobody sends": Kind(
        _nobody_sends,
        ("rank 0 waits for a message from rank 1 (16 B), which has already finished",),
        ("rank 0 waits in recv from rank 1", "rank 1 finished without it"),
    ),
    "a send that nobody receives": Kind(
        _nobody_receives,
        ("rank 0 waits to send 16 B to rank 1, which has already finished",),
        ("rank 0 waits in send to rank 1", "rank 1 finished without it"),
    ),
    "crossed receives": Kind(
        _crossed,
        ("rank 0 waits for a message from rank 1 (16 B)", "rank 1 waits for a message from rank 0 (16 B)"),
        ("in a circle: rank 0 -> rank 1 -> rank 0",),
    ),
    "a ring that receives first": Kind(
        _all_receive_first,
        tuple(f"rank {rank} waits for a message from rank {(rank - 1) % 3} (16 B)" for rank in range(3)),
        ("in a circle: rank 0 -> rank 2 -> rank 1 -> rank 0",),
    ),
    "another tag": Kind(
        _another_tag,
        (
            "rank 0 waits to send 16 B to rank 1 with tag 1, which asks for tag 2",
            "rank 1 waits for a message from rank 0 with tag 2 (16 B), which sends tag 1",
        ),
        ("rank 0 waits in send to rank 1 with tag 1", "rank 1 is in recv from rank 0 with tag 2"),
    ),
    "a posted receive": Kind(
        _posted_receive,
        ("rank 0 waits for a message from rank 1 (16 B)", "rank 1 waits in barrier #1, which rank 0 has not reached"),
        ("rank 0 waits in irecv from rank 1", "rank 2 waits in barrier"),
    ),
    "an all_reduce that one rank skips": Kind(
        _skips_all_reduce,
        _finished("all_reduce #1 (16 B)", 0, 2, without=1),
        ("rank 0 waits in all_reduce", "rank 2 waits in all_reduce", "rank 1 finished without it"),
    ),
    "a barrier that one rank skips": Kind(
        _skips_barrier,
        _finished("barrier #1", 0, 1, without=2),
        ("rank 0 waits in barrier", "rank 1 waits in barrier", "rank 2 finished without it"),
    ),
    "a rank that returns early": Kind(
        _returns_early,
        _finished("all_reduce #2 (16 B)", 0, 2, without=1),
        ("rank 0 waits in all_reduce (collective 2", "rank 1 finished without it"),
    ),
    "different collectives": Kind(
        _different_collectives,
        (
            "rank 0 waits in all_gather #1 (48 B), where rank 1 is in all_reduce instead",
            "rank 2 waits in all_reduce #1 (16 B), where rank 0 is in all_gather instead",
        ),
        ("Rank 1 called all_reduce", "where rank 0 called all_gather"),
    ),
    "another order of collectives": Kind(
        _another_order,
        (
            "rank 0 waits in broadcast #1 (32 B), where rank 1 is in all_reduce instead",
            "rank 1 waits in all_reduce #1 (8 B), where rank 0 is in broadcast instead",
        ),
        ("Rank 1 called all_reduce", "where rank 0 called broadcast"),
    ),
    "a broadcast from different ranks": Kind(
        _different_sources,
        (
            "rank 0 waits in broadcast #1 (16 B), where rank 1 says src=1, not src=0",
            "rank 2 waits in broadcast #1 (16 B), where rank 0 says src=0, not src=2",
        ),
        ("Rank 1 called broadcast", "from group rank 1", "from group rank 0"),
    ),
    "groups in another order": Kind(
        _groups_in_another_order,
        ("rank 0 waits in new_group([0, 2]) #2, w", " called new_group([0, 1])"),
        (),
    ),
    "a group that some ranks make": Kind(_group_of_some, _finished("new_group #1", 0, 1, without=2), ()),
    "a key that nobody sets": Kind(
        _key_of_nobody,
        ("rank 0 waits in store.get for a key that nobody has set", "Finished: ranks 1, 2"),
        ("rank 0 waits in store.wait for the key", "finished without it"),
    ),
}
OFTEN = ("another tag", "a broadcast from different ranks")
"""Tried here every time; tests/launch/test_launch_failures.py has others."""


def _told(kind: Kind, on: Any) -> LabkitError:
    def work() -> None:
        kind.work(dist.get_rank())

    with pytest.raises((RunTimeout, RankFailed)) as caught:
        labkit.run(work, on=on, timeout=60, echo=False)
    return caught.value


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in OFTEN else pytest.mark.long) for each in KINDS]
)
def test_each_kind_of_deadlock_is_told_here_with_the_ranks_and_what_each_stands_in(name: str) -> None:
    error = _told(KINDS[name], labkit.local(3, device="cpu"))
    assert isinstance(error, RunTimeout) and str(error).startswith("Deadlock: "), "the time limit told it"
    for words in KINDS[name].here:
        assert words in str(error)


@pytest.mark.parametrize("name", [each for each, kind in KINDS.items() if kind.virtual])
def test_each_kind_of_deadlock_is_told_of_virtual_ranks(name: str) -> None:
    error = _told(KINDS[name], labkit.virtual(3))
    assert isinstance(error, RankFailed) or str(error).startswith("Deadlock: ")
    for words in KINDS[name].virtual:
        assert words in str(error)


def _spins() -> None:
    while True:
        pass


@pytest.mark.long
@pytest.mark.parametrize(
    ("work", "says"),
    [
        (lambda: time.sleep(1000), "rank 1 is in no communication call\n"),
        (_spins, "rank 1 is in no communication call, it computes\n"),
    ],
    ids=["sleeps", "computes"],
)
def test_a_rank_that_is_busy_elsewhere_is_no_deadlock_and_named_at_the_time_limit(
    work: Callable[[], None], says: str
) -> None:
    def waits_for_one() -> None:
        if dist.get_rank() == 1:
            work()
        dist.barrier()

    with pytest.raises(RunTimeout, match=r"^The time limit of 8 s passed \(timeout=8\)\.") as caught:
        labkit.run(waits_for_one, on=labkit.local(3, device="cpu"), timeout=8, echo=False)
    assert caught.value.reports[1].startswith(says)
    for rank in (0, 2):
        assert caught.value.reports[rank].startswith(f"rank {rank} waits in barrier #1, which rank 1 has not reached\n")


@pytest.mark.long
def test_a_rank_that_dies_is_named_and_no_time_limit_passes() -> None:
    def work() -> None:
        if dist.get_rank() == 1:
            os._exit(3)
        dist.all_reduce(_tensor())

    with pytest.raises(RankFailed, match=r"^rank 1 of 3 failed first: ended with exit status 3\n"):
        labkit.run(work, on=labkit.local(3, device="cpu"), timeout=60, echo=False)
