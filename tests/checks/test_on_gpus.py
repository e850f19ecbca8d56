"""Checks on GPUs, as far as they can be told without one; and what checks on the CPU know of NCCL."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.checks.case import Case
from labkit.checks.notebook import on_gpus
from labkit.checks.one_by_one import would_hang
from labkit.checks.rank_side import moved
from labkit.errors import ConfigError
from labkit.launch.gpus import Gpu, Gpus, gpus
from tests.checks.lesson_cells import namespace

CASES = tuple(Case(f"{size} ranks", size, ({},) * size) for size in (2, 3, 4))


def host_with(count: int, nccl: str = "2.29.7") -> Gpus:
    return Gpus(tuple(Gpu(f"GPU-{n}", "stand-in", 10**9) for n in range(count)), count, nccl)


def one_by_one(tensor: torch.Tensor, steps: int, before: Any, after: Any) -> None:
    got = torch.empty_like(tensor)
    for _ in range(steps):
        send: Any = dist.isend(tensor, after)
        dist.recv(got, before)
        send.wait()
        tensor += got


def batched(tensor: torch.Tensor, steps: int, before: Any, after: Any) -> None:
    got = torch.empty_like(tensor)
    for _ in range(steps):
        ops = [dist.P2POp(dist.isend, tensor, after), dist.P2POp(dist.irecv, got, before)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()


def in_turns(tensor: torch.Tensor, steps: int, before: Any, after: Any) -> None:
    got = torch.empty_like(tensor)
    for _ in range(steps):
        if dist.get_rank() == 0:
            dist.send(tensor, after)
            dist.recv(got, before)
        else:
            dist.recv(got, before)
            dist.send(tensor, after)
        dist.barrier()


def receives_early(tensor: torch.Tensor, steps: int, before: Any, after: Any) -> None:
    """Every rank receives first, without waiting: by NCCL's order nobody's send is ever reached."""
    got = torch.empty_like(tensor)
    receive = dist.irecv(got, before)
    dist.send(tensor, after)
    assert receive is not None
    receive.wait()


def recorded(post: Any, num_ranks: int) -> labkit.Timeline:
    def ring() -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        post(torch.ones(4), 2, (rank - 1) % size, (rank + 1) % size)
        dist.all_reduce(torch.ones(1))

    timeline = labkit.run(ring, on=labkit.local(num_ranks, device="cpu"), echo=False).timeline
    assert timeline is not None
    return timeline


@pytest.mark.in_turn
@pytest.mark.parametrize("post", [one_by_one, receives_early])
def test_a_ring_posted_one_by_one_is_told_with_its_line_although_the_cpu_forgives_it(post: Any) -> None:
    said = would_hang(recorded(post, 3))
    assert said.startswith("On GPUs this can hang: rank 0 in ")
    assert "rank 2 in " in said and "test_on_gpus.py:" in said
    assert "dist.batch_isend_irecv" in said


@pytest.mark.parametrize("post", [batched, in_turns])
def test_batches_and_turns_are_no_hang(post: Any) -> None:
    assert would_hang(recorded(post, 3)) == ""


def test_of_two_ranks_that_both_send_first_both_are_told() -> None:
    said = would_hang(recorded(one_by_one, 2))
    assert "rank 0 in isend to rank 1" in said and "rank 1 in isend to rank 0" in said and "rank 2" not in said


@pytest.mark.in_turn
def test_a_check_that_passes_on_the_cpu_says_what_gpus_would_not_forgive() -> None:
    names = namespace()
    source = """
def ring_sum(tensor, group=None):
    import torch, torch.distributed as dist
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    right, left = (dist.get_global_rank(group or dist.group.WORLD, (rank + step) % size) for step in (1, -1))
    mine = tensor.clone()
    for _ in range(size - 1):
        got = torch.empty_like(mine)
        send = dist.isend(mine, right, group=group)
        dist.recv(got, left, group=group)
        send.wait()
        tensor += got
        mine = got
"""
    exec(compile(source, "<cell of the test>", "exec"), names)
    exercise = labkit.check("ring_sum", names["ring_sum"])
    told = [each.on_gpus for each in exercise.outcomes if each.passed and each.case.world_size > 1]
    assert told and all(text.startswith("On GPUs this can hang") for text in told[:1])
    right = labkit.check("ring_sum", namespace()["ring_sum"])
    assert right.passed and "On GPUs" not in repr(right)


def test_cases_with_more_ranks_than_gpus_are_left_out_in_words() -> None:
    assert on_gpus(CASES, "cuda", host_with(4)) == (CASES, "")
    kept, words = on_gpus(CASES, "cuda", host_with(2))
    assert [case.name for case in kept] == ["2 ranks"]
    assert words == "Left out, because they need more than the 2 GPUs here: 3 ranks and 4 ranks."


def test_no_room_is_refused_with_the_numbers() -> None:
    with pytest.raises(
        ConfigError, match=r"every case needs a GPU for each of at least 2 ranks, .* has 1 GPU that NCCL"
    ):
        on_gpus(CASES, "cuda", host_with(1))
    with pytest.raises(ConfigError, match="this host has 0 GPUs that NCCL can use"):
        on_gpus(CASES, "cuda", host_with(4, nccl=""))


@pytest.mark.skipif(bool(gpus().usable), reason="needs a host without a GPU")
def test_a_check_on_cuda_without_a_gpu_says_what_is_there() -> None:
    said = repr(labkit.check("ring_sum", namespace()["ring_sum"], device="cuda"))
    assert "Exercise ring_sum: not checked." in said
    assert 'device="cuda" was asked for' in said and "torch sees 0 GPUs" in said
    assert "device='gpu' is not known" in repr(
        labkit.check("ring_sum", namespace()["ring_sum"], device="gpu")  # type: ignore[arg-type]
    )


def test_every_tensor_of_the_inputs_goes_to_the_ranks_device() -> None:
    there = torch.device("meta")  # stands for a GPU
    got: Any = moved({"x": torch.ones(2), "parts": [torch.ones(1), {"y": torch.ones(3)}], "n": 3}, there)
    assert got["x"].device == got["parts"][0].device == got["parts"][1]["y"].device == there
    assert got["n"] == 3


@pytest.mark.gpu2
def test_the_solutions_ring_passes_on_nccl() -> None:
    result = labkit.check("ring_sum", namespace()["ring_sum"], device="cuda")
    assert result.passed, repr(result)
