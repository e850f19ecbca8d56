"""Lesson 01 keeps its contract: topics, exercises, points, and a MiniDataParallel that equals one process."""

from __future__ import annotations

import types
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import nn

from labkit.checks.on_ranks.hard_model import HardModel, hard_batch
from labkit.lessons.source import Lesson, load
from tests.lessons.contract import LessonContract

SOURCE = Path(__file__).parents[2] / "solutions" / "01_data_parallel.py"


class TestContract(LessonContract):
    number = "01"
    exercises = (
        "scatter",
        "gather",
        "replicate",
        "parallel_apply",
        "mini_data_parallel",
        "whole_batch_loss",
        "step_plan",
        "plan_cost",
        "shares_by_speed",
        "split_loader",
    )
    bonus = ("split_loader",)
    bonus_points = 8
    topics: ClassVar = {
        "threads": r"each replica gets a thread",
        "gradients reach the original": r"in the original's\*\* `\.grad`",
        "uneven batches": r"eleven samples on four devices",
        "fewer samples than devices": r"\*\*fewer samples than devices\*\*",
        "nested inputs": r"tuples, lists and dicts",
        "keywords": r"arguments and keywords",
        "buffers": r"\*\*buffers\*\* need a decision",
        "an exception in one replica": r"the nastiest",
        "which replica": r"in replica 2",
        "BatchNorm of a piece": r"\*\*its own piece\*\*",
        "nn.DataParallel on GPUs": r"nn\.dataparallel\(model, list\(range\(count",
        "its gradients": r"gradients equal those of nn\.dataparallel",
        "the one changed argument": r"one changed argument is the list of devices",
        "never ran on a GPU": r"never run on one",
        "float64 under SGD": r"in float64 and with plain sgd",
        "mean of means": r"when the mean of means is wrong",
        "the GIL": r"global interpreter lock",
        "one row per thread": r"lanes\.timeline\(\)",
        "two processes": r"in \*\*two processes\*\*",
        "the plan as data": r"class move",
        "the hot spot": r"\*\*hot spot\*\*",
        "predict, then run": r'labkit\.predict\("eight_device_ms"[\s\S]*labkit\.reveal\("eight_device_ms"',
        "against all_reduce": r"all_reduce\(gradients\)",
        "unequal devices": r"largest remainder",
        "a loader split by hand": r"class splitloader",
        "replicas detached": r"\*\*replicas that are detached",
        "buffers not copied": r"forget to copy the buffers",
        "a write in forward": r"a write in forward",
        "an exception that nobody hears": r"an exception that nobody hears",
        "replicas made once": r"replicas made once",
        "at scale": r"what breaks at scale",
        "the next lesson": r"02_ring_all_reduce",
    }


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


@pytest.fixture(scope="module")
def answers(lesson: Lesson) -> types.ModuleType:
    module = types.ModuleType("lesson_01")
    for cell in lesson.cells:
        if cell.role in ("given", "exercise"):
            exec(compile(cell.source, cell.id, "exec", dont_inherit=True), module.__dict__)
    return module


def test_exercises_fit_into_110_minutes_and_leave_time_to_read(lesson: Lesson) -> None:
    assert 50 <= sum(exercise.minutes for exercise in lesson.exercises if not exercise.bonus) <= 85


def test_no_cell_is_over_long(lesson: Lesson) -> None:
    for cell in lesson.cells:
        limit = 75 if cell.role == "exercise" else 36
        assert len(cell.source.splitlines()) <= limit, f"{cell.id} (line {cell.line}); cut it in two"


@pytest.mark.parametrize("num_devices", [1, 3, 4])
def test_three_steps_on_the_torture_model_equal_one_process_on_the_whole_batch(
    answers: types.ModuleType, num_devices: int
) -> None:
    alone, together = HardModel(4, norm=False), HardModel(4, norm=False)
    wrapped = answers.MiniDataParallel(together, [torch.device("cpu")] * num_devices)
    for step in range(3):
        x, y = hard_batch(step, 11)
        for model, called in ((alone, alone), (together, wrapped)):
            model.zero_grad()
            nn.functional.mse_loss(called(x, spare=step == 1), y).backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.1 * parameter.grad
    for (name, mine), theirs in zip(together.state_dict().items(), alone.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-13, msg=name)


@pytest.mark.gpu2
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
def test_on_two_gpus_outputs_and_gradients_equal_nn_dataparallel(answers: types.ModuleType) -> None:
    devices = [torch.device("cuda", 0), torch.device("cuda", 1)]
    x, y = (tensor.to(devices[0]) for tensor in hard_batch(7, 9))
    found = []
    for wrap in (lambda m: nn.DataParallel(m, device_ids=[0, 1]), lambda m: answers.MiniDataParallel(m, devices)):
        model = HardModel(4).to(devices[0])
        output = wrap(model)(x)
        nn.functional.mse_loss(output, y).backward()
        grads = {name: parameter.grad for name, parameter in model.named_parameters()}
        found.append({"output": output, **grads, **dict(model.named_buffers())})
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)
