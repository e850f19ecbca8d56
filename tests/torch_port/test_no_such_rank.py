"""A call that names a rank which the group does not have: every world refuses it alike, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import NoSuchRank, RankFailed
from labkit.torch_port.peers import check_peer

CALLS: dict[str, Callable[[], object]] = {
    "send to rank 2": lambda: dist.send(torch.ones(2), dst=2),
    "send to rank -1": lambda: dist.isend(torch.ones(2), dst=-1),
    "recv from rank 2": lambda: dist.recv(torch.ones(2), src=2),
    "recv from rank -1": lambda: dist.batch_isend_irecv([dist.P2POp(dist.irecv, torch.ones(2), -1)]),
    "broadcast from rank 2": lambda: dist.broadcast(torch.ones(2), src=2),
    "reduce to rank -1": lambda: dist.reduce(torch.ones(2), dst=-1),
    "gather to rank 5": lambda: dist.gather(torch.ones(2), None, dst=5),
    "scatter from rank 5": lambda: dist.scatter(torch.ones(2), None, src=5),
}


@pytest.mark.parametrize("world", [labkit.virtual(2), labkit.local(2)], ids=["virtual", "local"])
def test_a_rank_that_does_not_exist_is_refused_by_every_call(world: labkit.VirtualWorld | labkit.LocalWorld) -> None:
    def work() -> dict[str, str]:
        refused = {}
        for name, call in CALLS.items():
            try:
                call()
            except ValueError as error:
                refused[name] = str(error)
        return refused

    expected = {name: f"{name}: there is no such rank; the group has ranks 0 to 1" for name in CALLS}
    assert labkit.run(work, on=world).results == [expected, expected]


@pytest.mark.parametrize("world", [labkit.virtual(3), labkit.local(3)], ids=["virtual", "local"])
def test_of_a_ring_without_modulo_the_rank_at_the_end_fails_with_the_number_it_named(
    world: labkit.VirtualWorld | labkit.LocalWorld,
) -> None:
    def work() -> None:
        tensor = torch.ones(2)
        dist.recv(tensor, src=dist.get_rank() + 1)

    with pytest.raises(RankFailed) as caught:
        labkit.run(work, on=world)
    assert caught.value.rank == 2
    assert "NoSuchRank: recv from rank 3: there is no such rank; the group has ranks 0 to 2" in str(caught.value)


def test_a_group_of_one_has_rank_0_alone() -> None:
    assert check_peer("send to", 0, 1) == 0
    with pytest.raises(NoSuchRank, match="send to rank 1: there is no such rank; the group has rank 0 alone"):
        check_peer("send to", 1, 1)
