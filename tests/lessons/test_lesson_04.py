"""Lesson 04 keeps its contract: topics, exercises, points, and a MiniDDP that does what torch's DDP does."""

from __future__ import annotations

import types
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import nn

import labkit
from labkit.checks.on_ranks.hard_model import HardModel, hard_batch
from labkit.errors import RankFailed
from labkit.lessons.source import Lesson, load
from tests.lessons.contract import LessonContract

SOURCE = Path(__file__).parents[2] / "solutions" / "04_ddp.py"


class TestContract(LessonContract):
    number = "04"
    exercises = (
        "broadcast_module",
        "average_gradients",
        "overlapped_ddp",
        "bucket_plan",
        "bucketed_ddp",
        "accumulating_ddp",
        "mini_ddp",
        "sharded_sampler",
        "overlap_gain",
        "uneven_inputs",
    )
    bonus = ("uneven_inputs",)
    bonus_points = 8
    topics: ClassVar = {
        "broadcast at the start": r"dist\.broadcast\(tensor, src=0\)",
        "buffers": r"batchnorm's running mean",
        "naive averaging": r"average after backward",
        "compare in float64 under SGD": r"in float64[\s\S]*plain sgd",
        "a hook for each parameter": r"register_post_accumulate_grad_hook",
        "buckets in reverse": r"walk \*backwards\*",
        "asynchronous all_reduce": r"async_op=true",
        "overlap as a number": r"hidden_communication_share",
        "accumulation": r"no_sync",
        "unused parameters": r"\*\*unused parameters\.\*\*",
        "tied weights": r"two layers share",
        "frozen parameters": r"\*\*frozen\*\*",
        "torch's DDP": r"torch's own ddp",
        "the switch": r"use_mine",
        "set_epoch": r"set_epoch",
        "the best bucket by a formula": r"best size of a bucket",
        "weak and strong scaling": r"weak and strong scaling, to 64 gpus",
        "linear scaling": r"linear\s+scaling rule",
        "warm-up": r"\*\*warm-up\*\*",
        "uneven inputs": r"ddp\.join\(\)",
        "a wait dropped": r"drop a wait",
        "buckets swapped": r"swap the order of buckets",
        "a branch on the rank": r"branch on the rank",
        "set_epoch forgotten": r"forget set_epoch",
        "at scale": r"what breaks at scale",
        "the next lesson": r"06_parameter_server",
    }


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


@pytest.fixture(scope="module")
def answers(lesson: Lesson) -> types.ModuleType:
    module = types.ModuleType("lesson_04")
    for cell in lesson.cells:
        if cell.role in ("given", "exercise"):
            exec(compile(cell.source, cell.id, "exec", dont_inherit=True), module.__dict__)
    return module


def test_exercises_fit_into_100_minutes_and_leave_time_to_read(lesson: Lesson) -> None:
    assert 50 <= sum(exercise.minutes for exercise in lesson.exercises if not exercise.bonus) <= 85


def test_no_cell_is_over_long(lesson: Lesson) -> None:
    for cell in lesson.cells:
        limit = 75 if cell.role == "exercise" else 36
        assert len(cell.source.splitlines()) <= limit, f"{cell.id} (line {cell.line}); cut it in two"


def _train(wrapper: Any, steps: int) -> list[torch.Tensor]:
    rank = dist.get_rank()
    model = HardModel(5 + rank)
    ddp = wrapper(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9, weight_decay=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        x, y = hard_batch(100 * step + rank, 4)
        nn.functional.mse_loss(ddp(x, spare=step == 1 and rank == 1), y).backward()
        if hasattr(ddp, "finish_gradient_synchronization"):
            ddp.finish_gradient_synchronization()
        optimizer.step()
    return [tensor.clone() for tensor in model.state_dict().values()]


def test_mini_ddp_trains_the_torture_model_as_torchs_ddp_does(answers: types.ModuleType) -> None:
    torchs = partial(nn.parallel.DistributedDataParallel, find_unused_parameters=True)
    world = labkit.local(3, device="cpu")
    ours = labkit.run(_train, partial(answers.MiniDDP, bucket_cap_mb=200 / 2**20), 3, on=world, echo=False).results
    theirs = labkit.run(_train, torchs, 3, on=world, echo=False).results
    for mine, other in zip(ours, theirs, strict=True):
        for a, b in zip(mine, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


class _MixedTypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        kinds = (torch.complex64, torch.float32, torch.float64, torch.bfloat16)
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(2, dtype=kind)) for kind in kinds)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for scale in self.scales:
            product = (scale * given).sum()
            total = total + (product.real if product.is_complex() else product)
        return total


def _mixed(wrap: Any) -> list[torch.Tensor]:
    model = _MixedTypes()
    wrapped = wrap(model)
    wrapped(torch.tensor(1.0 + dist.get_rank())).backward()
    if hasattr(wrapped, "finish_gradient_synchronization"):
        wrapped.finish_gradient_synchronization()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def test_mini_ddp_averages_complex_and_mixed_dtypes_as_torchs_ddp_does(answers: types.ModuleType) -> None:
    world = labkit.virtual(2)
    theirs = labkit.run(_mixed, nn.parallel.DistributedDataParallel, on=world, echo=False).results
    for cap in (25.0, 0.00001):
        ours = labkit.run(_mixed, partial(answers.MiniDDP, bucket_cap_mb=cap), on=world, echo=False).results
        for mine, other in zip(ours, theirs, strict=True):
            assert len(mine) == 4
            for a, b in zip(mine, other, strict=True):
                torch.testing.assert_close(a, b)


def _sparse(wrap: Any) -> None:
    wrapped = wrap(nn.Embedding(4, 2, sparse=True))
    wrapped(torch.tensor([dist.get_rank()])).sum().backward()


def test_mini_ddp_refuses_a_sparse_gradient_by_name(answers: types.ModuleType) -> None:
    with pytest.raises(RankFailed, match=r"MiniDDP averages dense gradients, and one is sparse"):
        labkit.run(_sparse, answers.MiniDDP, on=labkit.virtual(2), echo=False)
