"""Lesson 08 keeps its contract: topics, exercises, points, stubs; and its answers do what they promise."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import nn

import labkit
from labkit.lessons.source import Lesson, load
from labkit.timeline.memory import peak_memory_bytes
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract

SOURCE = Path(__file__).parents[2] / "solutions" / "08_pipeline.py"


class TestContract(LessonContract):
    number = "08"
    exercises = (
        "memory_budget",
        "one_batch",
        "split_layer",
        "bubble",
        "gpipe",
        "find_deadlock",
        "one_f_one_b",
        "run_schedule",
        "best_microbatches",
        "recompute",
        "data_and_pipeline",
        "interleaved",
        "zero_bubble",
        "run_orders",
    )
    bonus = ("interleaved", "zero_bubble", "run_orders")
    bonus_points = 26
    topics: ClassVar = {
        "what fills the memory": r"16 gb",
        "24 GB, and which share is a guess": r"arrives at 24 gb for a billion parameters\. the first 16 are arithmetic",
        "700 GB of gradients": r"700 gb a step",
        "inter-operator": r"inter-operator",
        "intra-operator": r"intra-operator",
        "Megatron's f and g": r"shoeybi et al\., 2019",
        "the bubble": r"\(p-1\)/\(m\+p-1\)",
        "schedules as data": r"a schedule is data",
        "one batch of messages": r"one batch",
        "find the deadlock": r"will it come to an end",
        "1F1B": r"1f1b",
        "scale of the loss": r"the scale of the loss",
        "uneven microbatches": r"4, 3 and 3",
        "held activations": r"held at most|activations at most",
        "predicted and found": r"predicted and found",
        "best number of microbatches": r"how many microbatches",
        "checkpointing": r"chen et al\., 2016",
        "recomputing counts BatchNorm twice": r"batchnorm counts twice",
        "the library": r"torch\.distributed\.pipelining",
        "mean of means in the library": r"the library divides every gradient by m",
        "mesh": r"devicemesh",
        "interleaved": r"interleaved stages",
        "zero bubble": r"qi et al\., 2023",
        "smaller bubbles run for real": r"run them for real",
        "a hybrid on your own wrapper": r"use_mine",
        "failures on purpose": r"break it on purpose",
        "mismatch the schedule": r"mismatch the schedule",
        "drop a wait": r"drop a wait",
        "forget the scale": r"forget the scale",
        "at scale": r"what breaks at scale",
        "the next lesson": r"10_gradient_compression",
    }
    slides = (12, 25)
    least_guesses = 7


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return namespace(number="08")


def test_the_slide_of_the_bubble_says_what_the_function_returns(lesson: Lesson, answers: dict[str, Any]) -> None:
    (table,) = [cell.source for cell in lesson.cells if cell.source.startswith("### The bubble")]
    rows = re.findall(r"^\| (\d) stages \| (.*) \|$", table, re.MULTILINE)
    assert len(rows) == 3
    for stages, shares in rows:
        shown = [float(share.split()[0]) for share in shares.split("|")]
        assert shown == [round(100 * answers["bubble_share"](int(stages), m), 1) for m in (1, 4, 8, 16, 32, 64)]


def _large_step(names: dict[str, Any], write: str, count: int) -> None:
    stage, num_stages = dist.get_rank(), dist.get_world_size()
    x = [torch.empty(8192 // count, 16384, device="meta", requires_grad=True) for _ in range(count)]
    names["run_schedule"](
        names[write](stage, num_stages, count), names["layers"](16384, 12, "meta"), [8192 // count] * count,
        torch.empty(16384, device="meta"), x if stage == 0 else None, x if stage == num_stages - 1 else None,
        nn.functional.mse_loss,
    )  # fmt: skip


@pytest.mark.parametrize(("stages", "count"), [(2, 4), (4, 8)])
def test_the_bubble_is_the_predicted_one_to_one_per_cent_on_the_virtual_cluster(
    answers: dict[str, Any], stages: int, count: int
) -> None:
    runs = {
        write: labkit.run(partial(_large_step, answers, write), count, on=labkit.virtual(stages)).timeline
        for write in ("gpipe", "one_f_one_b")
    }
    for write, timeline in runs.items():
        share = answers["bubble_of"](timeline)
        assert share == pytest.approx(answers["bubble_share"](stages, count), rel=0.01), write
    held = [peak_memory_bytes(runs[write], 0, "activations") for write in ("gpipe", "one_f_one_b")]
    assert held[1] == pytest.approx(held[0] * stages / count, rel=0.15)


def _gradients(names: dict[str, Any], write: str, sizes: list[int]) -> bool:
    stage, num_stages = dist.get_rank(), dist.get_world_size()
    modules = [names["layers"](5, 2, "cpu").double() for _ in range(num_stages)]
    whole = [names["layers"](5, 2, "cpu").double() for _ in range(num_stages)]
    draw = torch.Generator().manual_seed(3)
    x, y = torch.randn(2, sum(sizes), 5, generator=draw, dtype=torch.float64)
    names["run_schedule"](
        names[write](stage, num_stages, len(sizes)), modules[stage], sizes, x[0],
        list(x.split(sizes)) if stage == 0 else None, list(y.split(sizes)) if stage == num_stages - 1 else None,
        nn.functional.mse_loss,
    )  # fmt: skip
    nn.functional.mse_loss(nn.Sequential(*whole)(x), y).backward()
    pairs = zip(modules[stage].parameters(), whole[stage].parameters(), strict=True)
    return all(torch.allclose(mine.grad, theirs.grad, rtol=1e-12, atol=1e-15) for mine, theirs in pairs)


@pytest.mark.parametrize("write", ["gpipe", "one_f_one_b"])
def test_gradients_are_those_of_the_whole_batch_on_eight_virtual_stages(answers: dict[str, Any], write: str) -> None:
    run = labkit.run(partial(_gradients, answers, write), [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], on=labkit.virtual(8))
    assert run.results == [True] * 8


def test_no_schedule_up_to_eight_stages_and_twelve_microbatches_gets_stuck(answers: dict[str, Any]) -> None:
    for write in ("gpipe", "one_f_one_b"):
        for stages in range(1, 9):
            for count in range(1, 13):
                assert answers["find_stuck"]([answers[write](s, stages, count) for s in range(stages)]) == {}
