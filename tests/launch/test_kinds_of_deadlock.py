"""Whatever keeps ranks from going on is told in words: which ranks wait, in what, for whom, in which circle.

On this host each kind takes 2 to 5 s to be told (labkit/launch/watchdog.py), on virtual ranks none. The grader's report
of the same kinds is held to the same words in tests/grading/test_deadlocks_of_students.py.
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
from tests.launch.kinds_of_deadlock import KINDS, OFTEN, Kind, without_places


def _tensor(size: int = 4) -> torch.Tensor:
    return torch.ones(size)


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
class Own:
    """A way to wait for ever of which the worlds do not say the same.

    Attributes:
        work: What each rank does; it is handed its rank.
        here: What the report says of ranks that are processes of this host.
        virtual: What it says of virtual ranks, () where nobody waits for ever.
    """

    work: Callable[[int], None]
    here: tuple[str, ...]
    virtual: tuple[str, ...]


_UNSET = "rank 0 waits in store.get('nobody'), which nobody has set, and ranks 1 and 2 have finished, at test_kinds"
OWN = {
    "different collectives": Own(
        _different_collectives,
        (
            "rank 0 waits in all_gather #1 (48 B), where rank 1 is in all_reduce instead",
            "rank 2 waits in all_reduce #1 (16 B), where rank 0 is in all_gather instead",
            "in a circle: rank 0 -> rank 1 -> rank 0",
        ),
        ("Rank 1 called all_reduce", "where rank 0 called all_gather"),
    ),
    "another order of collectives": Own(
        _another_order,
        (
            "rank 0 waits in broadcast #1 (32 B), where rank 1 is in all_reduce instead",
            "rank 1 waits in all_reduce #1 (8 B), where rank 0 is in broadcast instead",
        ),
        ("Rank 1 called all_reduce", "where rank 0 called broadcast"),
    ),
    "a broadcast from different ranks": Own(
        _different_sources,
        (
            "rank 0 waits in broadcast #1 (16 B), where rank 1 says src=1, not src=0",
            "rank 2 waits in broadcast #1 (16 B), where rank 0 says src=0, not src=2",
        ),
        ("Rank 1 called broadcast", "from group rank 1", "from group rank 0"),
    ),
    "groups in another order": Own(
        _groups_in_another_order,
        ("rank 0 waits in new_group([0, 2]) #2, w", " called new_group([0, 1])"),
        (),
    ),
    "a group that some ranks make": Own(
        _group_of_some,
        tuple(f"rank {rank} waits in new_group #1, which rank 2 finished without" for rank in (0, 1)),
        (),
    ),
    "a key that nobody sets": Own(
        _key_of_nobody, (_UNSET, "Finished: ranks 1 and 2"), (_UNSET, "Finished: ranks 1 and 2")
    ),
}
OWN_OFTEN = "a broadcast from different ranks"
"""Tried here every time; tests/launch/test_launch_failures.py has others."""


def _told(work: Callable[[], None], on: Any) -> LabkitError:
    with pytest.raises((RunTimeout, RankFailed)) as caught:
        labkit.run(work, on=on, timeout=60, echo=False)
    return caught.value


def _is_told(kind: Kind, error: LabkitError) -> None:
    """Hold the report against the words of this kind, and the places that it names against the code."""
    report = str(error).partition("\n\n")[0].splitlines()
    lines = [line.removeprefix("  ") for line in report if line.startswith("  ")]
    assert " ".join(report[: -len(lines)]) == kind.headline
    told = [without_places(line) for line in lines]
    assert tuple(line for line, _ in told) == kind.lines
    assert {code for line, code in told if " waits in " in line} <= kind.codes()


@pytest.mark.in_turn
@pytest.mark.parametrize("name", [pytest.param(x, marks=() if x in OFTEN else pytest.mark.long) for x in KINDS])
def test_each_kind_of_deadlock_is_told_here_in_the_words_of_all_worlds(name: str) -> None:
    error = _told(KINDS[name].function(), labkit.local(3, device="cpu"))
    assert isinstance(error, RunTimeout)
    _is_told(KINDS[name], error)
    assert "Every rank that has not finished waits, and none has moved for " in str(error), "the time limit told it"


@pytest.mark.in_turn
@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_deadlock_is_told_of_virtual_ranks_in_the_words_of_all_worlds(name: str) -> None:
    _is_told(KINDS[name], _told(KINDS[name].function(), labkit.virtual(3)))


@pytest.mark.parametrize("name", [pytest.param(x, marks=() if x in OWN_OFTEN else pytest.mark.long) for x in OWN])
def test_what_only_ranks_of_this_host_wait_for_is_told_with_the_ranks_and_what_each_stands_in(name: str) -> None:
    error = _told(lambda: OWN[name].work(dist.get_rank()), labkit.local(3, device="cpu"))
    assert isinstance(error, RunTimeout) and str(error).startswith("Deadlock: "), "the time limit told it"
    for words in OWN[name].here:
        assert words in str(error)


@pytest.mark.in_turn
@pytest.mark.parametrize("name", [each for each, own in OWN.items() if own.virtual])
def test_what_virtual_ranks_refuse_or_wait_for_in_its_place_is_told(name: str) -> None:
    error = _told(lambda: OWN[name].work(dist.get_rank()), labkit.virtual(3))
    assert isinstance(error, RankFailed) or str(error).startswith("Deadlock: ")
    for words in OWN[name].virtual:
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
