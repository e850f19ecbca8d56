"""Ranks that wait inside torch's C++ are told as soon as others, with the call, the peer and the line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import labkit
from labkit.errors import RunTimeout
from labkit.launch import supervisor
from labkit.launch.hidden_waits import stands_in_torch
from labkit.launch.stacks import Frame


def _one_backward_more() -> None:
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    for _ in range(3 - dist.get_rank()):
        model(torch.ones(2, 3)).sum().backward()


def _functional_on_one_rank() -> None:
    from torch.distributed._functional_collectives import all_reduce

    if dist.get_rank() == 0:
        all_reduce(torch.ones(2), "sum", dist.group.WORLD).sum()


def _shutdown_on_one_rank() -> None:
    import torch.distributed.rpc as rpc

    rank = int(os.environ["RANK"])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    if rank == 0:
        rpc.shutdown()


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("program", "call"),
    [
        (_one_backward_more, "all_reduce #"),
        (_functional_on_one_rank, "all_reduce #1"),
        (_shutdown_on_one_rank, "rpc.shutdown #1"),
    ],
)
def test_a_rank_that_waits_in_cpp_for_one_that_has_finished_is_told(
    program: Callable[[], None], call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_ARRIVE_LIMIT", 2.0)  # waited for whole: such a rank is never on record as waiting
    with pytest.raises(RunTimeout) as told:
        labkit.run(program, on=labkit.local(2, device="cpu"), stall=0.5, timeout=60, echo=False)
    words = str(told.value)
    assert words.startswith("Deadlock"), words
    assert f"rank 0 waits in {call}" in words and ", which rank 1 finished without" in words
    assert f"in {program.__name__}" in told.value.reports[0]


def test_a_rank_that_sleeps_with_a_collective_under_way_does_not_wait_for_it() -> None:
    def program() -> float:
        value = torch.ones(1)
        if dist.get_rank() == 0:
            work = dist.all_reduce(value, async_op=True)
            time.sleep(3)
            dist.send(value, 1)
            assert work is not None
            work.wait()
        else:
            dist.recv(torch.zeros(1), 0)
            dist.all_reduce(value)
        return float(value)

    run = labkit.run(program, on=labkit.local(2, device="cpu"), stall=0.5, timeout=60, echo=False)
    assert run.results == [2.0, 2.0]


@pytest.mark.in_turn
def test_uneven_inputs_are_joined_with_the_number_of_ranks_that_still_have_some() -> None:
    def program() -> list[float]:
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(2, 1))
        found = []
        with model.join(divide_by_initial_world_size=False):
            for step in range(dist.get_rank() + 1):
                model.zero_grad()
                model(torch.full((1, 2), 1.0 + step + dist.get_rank())).sum().backward()
                found.append(float(model.module.weight.grad[0, 0]))
        return found

    for world in (labkit.local(2, device="cpu"), labkit.virtual(2)):
        assert labkit.run(program, on=world, timeout=60, echo=False).results == [[1.5], [1.5, 3.0]]


def test_only_parts_of_torch_that_wait_for_ranks_count() -> None:
    def stands(file: str) -> bool:
        return stands_in_torch([Frame("train.py", 3, "main"), Frame(file, 1, "call")])

    assert stands("/env/site-packages/torch/autograd/graph.py") and stands("/env/site-packages/torch/_ops.py")
    for file in ("torch/utils/data/dataloader.py", "torch/serialization.py", "torch/cuda/__init__.py", "numpy/core.py"):
        assert not stands(f"/env/site-packages/{file}")
    assert not stands("/home/ada/torch/train.py") and not stands_in_torch([])
