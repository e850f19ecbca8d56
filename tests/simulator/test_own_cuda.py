"""What a process has of its own of CUDA, each virtual rank has: whether it has started, which devices it sees."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import randn as sharded_randn

import labkit
from labkit.errors import RankFailed

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def _run(fn: Any, size: int = 2, **options: Any) -> list[Any]:
    return labkit.run(fn, on=labkit.virtual(size, cuda=True), echo=False, **options).results


def test_cuda_has_not_started_before_the_program_uses_it() -> None:
    def asked() -> list[bool]:
        found = [torch.cuda.is_initialized()]
        torch.cuda.is_available(), torch.cuda.device_count()
        found.append(torch.cuda.is_initialized())
        torch.cuda.set_device(dist.get_rank())
        return [*found, torch.cuda.is_initialized()]

    def used() -> list[bool]:
        before = torch.cuda.is_initialized()
        torch.ones(1, device=labkit.device())
        return [before, torch.cuda.is_initialized()]

    assert _run(asked) == [[False, False, True]] * 2
    assert _run(used) == [[False, True]] * 2


def test_a_device_mesh_chooses_the_ranks_device_where_the_program_has_not() -> None:
    def program() -> str:
        init_device_mesh("cuda", (2,))
        return str(torch.ones(2).to("cuda").device)

    assert _run(program, init=False) == ["cuda:0", "cuda:1"]


@pytest.mark.parametrize("named", ["rank", "reversed"])
def test_devices_that_a_rank_makes_visible_are_the_ones_it_counts(named: str) -> None:
    def program() -> tuple[int, str, float]:
        rank = int(os.environ["LOCAL_RANK"])
        os.environ["CUDA_VISIBLE_DEVICES"] = str(rank) if named == "rank" else f"{1 - rank},{rank}"
        index = 0 if named == "rank" else 1
        torch.cuda.set_device(index)
        dist.init_process_group("nccl")
        value = torch.ones(1, device="cuda")
        dist.all_reduce(value)
        os.environ["CUDA_VISIBLE_DEVICES"] = "7"  # too late, as on GPUs
        return torch.cuda.device_count(), str(value.device), float(value)

    count, device = (1, "cuda:0") if named == "rank" else (2, "cuda:1")
    assert _run(program, init=False) == [(count, device, 2.0)] * 2


def test_a_rank_that_hides_its_device_finds_none_or_is_told_whose_the_other_is(monkeypatch: Any) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # of this host: virtual nodes have their own devices

    def hides(named: str) -> tuple[bool, int]:
        found = (torch.cuda.is_available(), torch.cuda.device_count())
        assert found == (True, 2)
        os.environ["CUDA_VISIBLE_DEVICES"] = named
        return torch.cuda.is_available(), torch.cuda.device_count()

    def takes_another() -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        torch.ones(1, device="cuda:0")

    assert labkit.run(hides, "", on=labkit.virtual(2, cuda=True), echo=False).results == [(False, 0)] * 2
    with pytest.raises(RankFailed, match="is not in CUDA_VISIBLE_DEVICES='0'"):
        _run(takes_another)


def test_shards_draw_their_own_random_numbers_and_replicas_the_same() -> None:
    def program() -> dict[str, list[float]]:
        mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicas", "shards"))
        whole = distribute_tensor(torch.zeros(4, 2, device="cuda"), mesh, [Replicate(), Shard(0)])
        whole.normal_()
        dropped = torch.nn.functional.dropout(distribute_tensor(torch.ones(64, device="cuda"), mesh, [Replicate()] * 2))
        made = sharded_randn(4, 2, device_mesh=mesh, placements=[Replicate(), Shard(0)])
        empty = torch.nn.Linear(2, 4, device="meta").to_empty(device="cuda")
        weight = DTensor.from_local(empty.weight.detach(), mesh, [Replicate(), Shard(0)])
        torch.nn.init.kaiming_uniform_(weight)
        parts = {"normal_": whole, "dropout": dropped, "randn": made, "init": weight}
        return {name: part.to_local().flatten().tolist() for name, part in parts.items()}

    first, other_shard, replica, _ = found = _run(program, size=4)
    assert first == replica and other_shard == found[3] and first["dropout"] == other_shard["dropout"]
    for name in ("normal_", "randn", "init"):
        assert first[name] != other_shard[name]
    assert first["normal_"] != first["randn"] and 0.0 < sum(first["dropout"]) < 2.0 * 64
    assert _run(program, size=4) == found


def test_nccl_has_a_version_and_the_hook_that_asks_for_it_works() -> None:
    def program() -> list[list[float]]:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

        torch.cuda.set_device(dist.get_rank())
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1).cuda())
        model.register_comm_hook(None, bf16_compress_hook)
        model(torch.full((1, 2), 1.0 + 2 * dist.get_rank(), device="cuda")).sum().backward()
        assert torch.cuda.nccl.version() >= (2, 10) and torch.version.cuda
        return model.module.weight.grad.tolist()

    before = torch.version.cuda
    assert _run(program) == [[[2.0, 2.0]]] * 2
    assert torch.version.cuda == before
