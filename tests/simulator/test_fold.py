"""Folded runs: two of the replicas run, and the record is that of a run of all."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import labkit
from labkit.errors import ConfigError, RankFailed
from labkit.simulator.fold import FOLDED


def _run(fn: Any, fold: Any, world_size: int = 8, **more: Any) -> Any:
    return labkit.run(fn, on=labkit.virtual(world_size, cuda=True, shapes=True, fold=fold, **more), echo=False)


def sharded(tensor_parallel: int = 1) -> tuple[int, int]:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    shape = (dist.get_world_size() // tensor_parallel, tensor_parallel)
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("data", "tensor"))
    model = torch.nn.Sequential(
        *[
            torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64), torch.nn.GELU())
            for _ in range(2)
        ]
    ).cuda()
    for block in model:
        if tensor_parallel > 1:
            parallelize_module(block, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.randn(4, 64, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    return dist.get_world_size(), torch.cuda.max_memory_allocated()


def both() -> tuple[int, int]:
    return sharded(tensor_parallel=2)


def _of(timeline: Any, rank: int) -> list[tuple[Any, ...]]:
    columns = (timeline.lane, timeline.name, timeline.bytes, timeline.start_ns, timeline.end_ns)
    return list(zip(*(column[timeline.rank == rank].tolist() for column in columns), strict=True))


@pytest.mark.in_turn
@pytest.mark.parametrize(("program", "fold"), [pytest.param(sharded, 1, marks=pytest.mark.long), (both, 2)])
def test_a_folded_run_has_the_timeline_of_a_run_of_all(program: Any, fold: int) -> None:
    every, folded = (_run(program, one) for one in (None, fold))
    recorded = folded.timeline.tables["clock"]["rank"].tolist()
    assert recorded == list(range(2 * fold))
    for rank in range(8):
        assert _of(folded.timeline, rank if rank < 2 * fold else fold + rank % fold) == _of(every.timeline, rank)
    assert len(_of(folded.timeline, 0)) > 50
    assert folded.results == every.results
    for name in ("bytes", "time_ns", "reserved"):
        peaks = (run.timeline.tables["memory_peak"][name].tolist() for run in (folded, every))
        assert next(peaks) == next(peaks), name
    assert not [one for one in folded.timeline.problems if one.text.startswith(FOLDED)]


def parting() -> list[int]:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    x = torch.ones(256, device="cuda")
    if dist.get_rank() == 0:
        x = x * 2
    dist.all_reduce(x)
    ranks = [0] * dist.get_world_size()
    dist.all_gather_object(ranks, dist.get_rank())
    return ranks


def test_ranks_that_part_and_values_of_ranks_that_did_not_run_are_told() -> None:
    run = _run(parting, 1)
    assert run.results[7] == [0, *[1] * 7]
    said = [one.text for one in run.timeline.problems if one.text.startswith(FOLDED)]
    line = parting.__code__.co_firstlineno
    assert any("ranks 0 and 1 did not do the same: operator 2 is mul of " for text in said), said
    assert any(f"line {line + 7}" in text and "all_gather" in text for text in said), said


def message() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    x = torch.ones(4, device="cuda")
    if dist.get_rank() == 1:
        dist.send(x, 2)


def part_of_the_ranks() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    groups = [dist.new_group([0, 1, 6, 7]), dist.new_group([2, 3, 4, 5])]
    dist.all_reduce(torch.ones(4, device="cuda"), group=groups[0 if dist.get_rank() in (0, 1, 6, 7) else 1])


@pytest.mark.parametrize(
    ("program", "fold", "said"),
    [
        (message, 1, "rank 2 does not run"),
        (part_of_the_ranks, (1, 4), "neither rank 4 nor 5"),
    ],
)
def test_what_cannot_be_folded_is_refused(program: Any, fold: Any, said: str) -> None:
    with pytest.raises(RankFailed, match=said):
        _run(program, fold)


def across_stages(by_message: bool) -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    rank, x = dist.get_rank(), torch.ones(4, device="cuda")
    if by_message:
        (dist.send if rank < 4 else dist.recv)(x, (rank + 4) % 8)
        return
    groups = [dist.new_group([first, first + 4]) for first in range(4)]
    dist.all_reduce(x, group=groups[rank % 4])


def test_replicas_do_not_share_a_network_card_with_those_that_do_not_run() -> None:
    nodes: dict[str, Any] = {"gpus_per_node": 4, "fold": (1, 4)}
    for by_message, cards in ((False, 4), (True, 1)):
        with pytest.raises(RankFailed, match="talk between nodes, and rank 2, which the fold leaves out"):
            _run(lambda by_message=by_message: across_stages(by_message), nics_per_node=cards, **nodes)
    _run(lambda: across_stages(True), nics_per_node=4, **nodes)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"fold": 3, "shapes": True}, "do not divide 8 ranks"),
        ({"fold": "2by4", "shapes": True}, "cannot be read"),
        ({"fold": 2}, "give shapes=True"),
        ({"fold": 2, "shapes": True, "slow": {1: 2.0}}, "slow makes ranks differ"),
    ],
)
def test_a_fold_that_cannot_be_is_refused_before_the_run(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        labkit.virtual(8, **more)
