"""A program that starts its own ranks or workers is told what it did, by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import RankFailed

SPAWNS = """
import torch.multiprocessing as mp
def train(rank, size):
    print(rank)
if __name__ == "__main__":
    mp.spawn(train, args=(2,), nprocs=2)
"""


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("world", "said"),
    [
        (labkit.virtual(2), "mp.spawn started processes"),
        (labkit.local(2, device="cpu"), "starts its own ranks: mp.spawn"),
    ],
    ids=["virtual", "local"],
)
def test_a_script_that_spawns_its_own_ranks_is_told_so(tmp_path: Path, world: Any, said: str) -> None:
    program = tmp_path / "spawns.py"
    program.write_text(SPAWNS)
    with pytest.raises(RankFailed) as failed:
        labkit.run(labkit.script(program), on=world, echo=False)
    assert said in str(failed.value) and "DataLoader" not in str(failed.value)


@pytest.mark.in_turn
def test_whoever_starts_a_process_on_a_virtual_rank_is_named() -> None:
    def loads() -> None:
        list(torch.utils.data.DataLoader([1, 2], num_workers=1))

    def pools() -> None:
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(1) as pool:
            pool.submit(abs, -1).result()

    def plain() -> None:
        import multiprocessing

        multiprocessing.Process(target=abs, args=(1,)).start()

    for program, said in (
        (loads, "DataLoader started"),
        (pools, "ProcessPoolExecutor"),
        (plain, "multiprocessing started"),
    ):
        with pytest.raises(RankFailed, match=f"{said}.*A virtual rank cannot start a process"):
            labkit.run(program, on=labkit.virtual(1), echo=False)


def test_data_parallel_over_the_ranks_one_device_works_and_over_more_is_refused() -> None:
    def program(device_ids: list[int] | None) -> list[int]:
        rank = dist.get_rank()
        torch.cuda.set_device(rank)
        module = torch.nn.Linear(2, 1).cuda()
        wrapped = torch.nn.DataParallel(module, device_ids=[rank] if device_ids is None else device_ids)
        out = wrapped(torch.ones(3, 2))
        out.sum().backward()
        assert out.is_cuda and module.weight.grad.tolist() == [[3.0, 3.0]]
        return list(out.shape)

    world = labkit.virtual(2, cuda=True)
    assert labkit.run(program, None, on=world, echo=False).results == [[3, 1]] * 2
    with pytest.raises(RankFailed, match="a virtual rank has one device"):
        labkit.run(program, [0, 1], on=world, echo=False)
