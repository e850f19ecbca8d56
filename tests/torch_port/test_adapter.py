"""The process-group adapter: c10d's entry points, under all their names, become operations of a port."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from labkit.torch_port.adapter import PortGroup
from labkit.torch_port.operations import COLLECTIVES, OPERATIONS
from labkit.torch_port.port import Call, Members, Port


class Done(dist.Work):
    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return True


def noting_port() -> tuple[Any, list[tuple[Any, ...]]]:
    """Return a port that carries nothing out, and the list it notes each operation and its arguments in."""
    noted: list[tuple[Any, ...]] = []

    def noting(name: str) -> Any:
        def operation(self: Any, *args: Any) -> Done:
            noted.append((name, *args))
            return Done()

        return operation

    methods = {name: noting(name) for name in Port.__abstractmethods__}
    return type("NotingPort", (Port,), methods)(), noted


def group_of_two(rank: int = 0) -> tuple[Any, list[tuple[Any, ...]]]:
    port, noted = noting_port()
    return PortGroup("noting", Members("pair", (3, 5), rank), port), noted


def one() -> torch.Tensor:
    return torch.zeros(2)


def both() -> list[torch.Tensor]:
    return [torch.zeros(2), torch.zeros(2)]


def rooted(kind: Any, root: int = 0) -> Any:
    options = kind()
    options.rootRank = root
    return options


ARGUMENTS: dict[str, tuple[str, Any]] = {
    "allreduce": ("all_reduce", lambda: ([one()],)),
    "allreduce_coalesced": ("all_reduce", lambda: (both(),)),
    "broadcast": ("broadcast", lambda: ([one()], rooted(dist.BroadcastOptions))),
    "reduce": ("reduce", lambda: ([one()], rooted(dist.ReduceOptions))),
    "allgather": ("all_gather", lambda: ([both()], [one()])),
    "allgather_coalesced": ("all_gather", lambda: ([both(), both()], both())),
    "_allgather_base": ("all_gather_joined", lambda: (torch.zeros(4), one())),
    "allgather_into_tensor_coalesced": ("all_gather_joined", lambda: ([torch.zeros(4)], [one()])),
    "reduce_scatter": ("reduce_scatter", lambda: ([one()], [both()])),
    "_reduce_scatter_base": ("reduce_scatter_joined", lambda: (one(), torch.zeros(4))),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_joined", lambda: ([one()], [torch.zeros(4)])),
    "gather": ("gather", lambda: ([both()], [one()], rooted(dist.GatherOptions))),
    "gather_into_tensor": ("gather", lambda: (torch.zeros(4), one(), rooted(dist.GatherOptions))),
    "scatter": ("scatter", lambda: ([one()], [both()], rooted(dist.ScatterOptions))),
    "alltoall": ("all_to_all", lambda: (both(), both())),
    "alltoall_base": ("all_to_all", lambda: (torch.zeros(4), torch.zeros(4), [], [])),
    "barrier": ("barrier", lambda: ()),
    "monitored_barrier": ("barrier", lambda: ()),
    "send": ("send", lambda: ([one()], 1, 7)),
    "recv": ("receive", lambda: ([one()], 1, 7)),
    "recv_anysource": ("receive", lambda: ([one()], 7)),
}


@pytest.mark.in_turn
@pytest.mark.parametrize(("method", "name"), [(each.method, name) for each in OPERATIONS for name in each.methods])
def test_under_each_of_its_names_an_entry_point_becomes_the_same_operation(method: str, name: str) -> None:
    operation, arguments = ARGUMENTS[method]
    group, noted = group_of_two()
    getattr(group, name)(*arguments())
    assert [each[0] for each in noted] == [operation]


@pytest.mark.in_turn
@pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda each: each.method)
def test_a_collective_is_told_by_its_kind(collective: Any) -> None:
    group, noted = group_of_two()
    getattr(group, collective.method)(*ARGUMENTS[collective.method][1]())
    call = noted[0][1]
    assert call == Call(collective.kind, collective.method == "monitored_barrier")


def test_who_stays_in_the_call_is_told_by_its_options() -> None:
    group, noted = group_of_two()
    for asynchronous in (True, False):
        options = dist.AllreduceOptions()
        options.asyncOp = asynchronous
        group.allreduce([one()], options)
        group.allreduce([one()], opts=options)
    assert [each[1].blocking for each in noted] == [False, False, True, True]


def test_what_one_rank_can_see_to_be_wrong_never_reaches_the_port() -> None:
    group, noted = group_of_two()
    wrong = (
        lambda: group.allgather([[one()]], [one()]),
        lambda: group.allgather([[one(), torch.zeros(3)]], [one()]),
        lambda: group.all_gather_single(torch.zeros(3), one()),
        lambda: group.all_gather_single(torch.zeros(2 * one().numel(), dtype=torch.bfloat16), one()),
        lambda: group.reduce_scatter([one()], [[one()]]),
        lambda: group.reduce_scatter_single(one(), torch.zeros(5)),
        lambda: group.reduce_scatter_single(one(), torch.zeros(2 * one().numel(), dtype=torch.bfloat16)),
        lambda: group.alltoall([one()], both()),
        lambda: group.all_to_all_single(torch.zeros(3), torch.zeros(4), [], []),
        lambda: group.all_to_all_single(torch.zeros(4), torch.zeros(4), [1, 2], []),
        lambda: group.scatter([one()], [[one()]], rooted(dist.ScatterOptions)),
    )
    for call in wrong:
        with pytest.raises(RuntimeError):
            call()
    assert not noted


def test_calls_that_are_coalesced_have_one_handle() -> None:
    group, noted = group_of_two()
    device = torch.device("cpu")
    group._start_coalescing(device)
    works = [group.allreduce([one()]), group.send([one()], 1)]
    joint = group._end_coalescing(device)
    assert joint.wait() and len(noted) == 2
    assert joint._works == works
    assert not isinstance(group.allreduce([one()]), type(joint))


def test_only_the_root_gathers_and_only_the_root_scatters() -> None:
    group, noted = group_of_two(rank=1)
    group.gather([], [one()], rooted(dist.GatherOptions))
    group.scatter([one()], [], rooted(dist.ScatterOptions))
    assert noted[0][2] == [] and noted[1][3] == []
