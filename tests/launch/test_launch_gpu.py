"""The local world on GPUs. Run with ``make test-gpu``; without a GPU these are skipped in words."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from gpu_marks import NUM_GPUS, marked, one_gpu, two_gpus

import labkit
from labkit.errors import ConfigError, RankFailed


def total() -> tuple[float, str, str]:
    tensor = torch.full((1000,), dist.get_rank() + 1.0, device=labkit.device())
    dist.all_reduce(tensor)
    return tensor[0].item(), str(tensor.device), dist.get_backend()


@marked(one_gpu)
def test_one_rank_on_one_gpu_runs_on_nccl() -> None:
    run = labkit.run(total, on=labkit.local(1, device="cuda"))
    assert run.backend == "nccl/cuda"
    assert run.results[0][:2] == (1.0, "cuda:0")


@marked(one_gpu)
def test_a_notebook_that_has_touched_cuda_does_no_harm() -> None:
    assert torch.ones(3, device="cuda").sum().item() == 3
    for _ in range(2):
        run = labkit.run(total, on=labkit.local(1))
        assert run.results[0][:2] == (1.0, "cuda:0")
    assert torch.ones(3, device="cuda").sum().item() == 3


@marked(one_gpu)
def test_ranks_that_share_a_gpu_run_collectives_on_gloo_with_cuda_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    world_size = NUM_GPUS + 1
    run = labkit.run(total, on=labkit.local(world_size))
    assert run.backend == "gloo/cuda"
    assert {result[0] for result in run.results} == {world_size * (world_size + 1) / 2}
    assert {result[1] for result in run.results} == {f"cuda:{i}" for i in range(NUM_GPUS)}
    assert "share" in capsys.readouterr().out


@marked(one_gpu)
def test_point_to_point_between_ranks_that_share_a_gpu_works_on_cpu_tensors() -> None:
    def swap() -> float:
        mine, other = torch.tensor([float(dist.get_rank())]), torch.zeros(1)
        peer = dist.get_rank() ^ 1
        if dist.get_rank() >= 2 * (dist.get_world_size() // 2):
            return -1.0
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, other, peer)]):
            work.wait()
        return other.item()

    assert labkit.run(swap, on=labkit.local(2 * NUM_GPUS)).results[:2] == [1.0, 0.0]


@marked(one_gpu)
def test_cuda_tensors_come_back_on_the_cpu() -> None:
    tensor = labkit.run(lambda: torch.arange(4, device=labkit.device()), on=labkit.local(1)).results[0]
    assert tensor.device.type == "cpu" and tensor.tolist() == [0, 1, 2, 3]


@marked(one_gpu)
def test_an_error_of_the_device_names_the_rank() -> None:
    def work() -> None:
        torch.zeros(4, device=labkit.device())[torch.tensor([9], device=labkit.device())].cpu()

    with pytest.raises(RankFailed, match="rank 0 of 1 failed first"):
        labkit.run(work, on=labkit.local(1))


@marked(two_gpus)
def test_two_ranks_on_two_gpus_run_on_nccl() -> None:
    run = labkit.run(total, on=labkit.local(2, device="cuda"))
    assert run.backend == "nccl/cuda"
    assert [result[:2] for result in run.results] == [(3.0, "cuda:0"), (3.0, "cuda:1")]


@pytest.mark.skipif(NUM_GPUS > 0, reason="needs a host without a GPU")
def test_cuda_is_refused_where_there_is_no_gpu() -> None:
    with pytest.raises(ConfigError, match='device="cuda" was asked for 2 ranks, but on this host: torch sees 0 GPUs'):
        labkit.run(total, on=labkit.local(2, device="cuda"))
