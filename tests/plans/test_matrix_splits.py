"""What a split of matrices costs by the model is what it costs on virtual ranks; a plan is refused or fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import ConfigError
from labkit.hardware import Device, Link
from labkit.plans.matrix_splits import COLUMNS, ROWS, WHOLE, Machine, Matrix, exchanges, memory_bytes, step_seconds

MACHINE = Machine(4, 512, 1e9, 5e-6, 50e9, 100e12, 2e12, 4e-6)
CHAIN = [Matrix("up", 1024, 4096), Matrix("down", 4096, 1024), Matrix("narrow", 1024, 64), Matrix("wide", 64, 1024)]
PLANS = (
    [COLUMNS, ROWS, WHOLE, WHOLE],
    [COLUMNS, COLUMNS, COLUMNS, COLUMNS],
    [WHOLE, ROWS, ROWS, COLUMNS],
    [COLUMNS, WHOLE, COLUMNS, ROWS],
)


def play(plan: list[str]) -> None:
    """Compute three products for each matrix, and exchange what the model's docstring says."""
    size, tokens, is_part = dist.get_world_size(), MACHINE.num_tokens, False

    def gather(width: int) -> None:
        mine = torch.empty(tokens * width // size, device="meta")
        dist.all_gather([torch.empty_like(mine) for _ in range(size)], mine)

    for matrix, split in zip(CHAIN, plan, strict=True):
        gathers, reduces = exchanges(split, is_part)
        inputs = matrix.inputs // (size if split == ROWS else 1)
        outputs = matrix.outputs // (size if split == COLUMNS else 1)
        x, w = torch.empty(tokens, inputs, device="meta"), torch.empty(inputs, outputs, device="meta")
        y = torch.empty(tokens, outputs, device="meta")
        x @ w, y @ w.T, x.T @ y
        for _ in range(gathers):
            gather(matrix.inputs)
        for _ in range(reduces):
            dist.all_reduce(torch.empty(tokens * (matrix.outputs if split == ROWS else matrix.inputs), device="meta"))
        is_part = split == COLUMNS
    if is_part:
        gather(CHAIN[-1].outputs)


@pytest.mark.in_turn
@pytest.mark.parametrize("plan", PLANS, ids="-".join)
def test_the_model_takes_as_long_as_virtual_ranks(plan: list[str]) -> None:
    link = Link("plain", MACHINE.bytes_per_second, round(MACHINE.latency_s * 1e9), "a test's", "a test's")
    device = Device(
        "plain", 80 * 10**9, MACHINE.memory_bytes_per_second, {"float32": MACHINE.flops}, "nvlink4", "a test's",
        compute_share=1.0, memory_share=1.0,
    )  # fmt: skip
    world = labkit.virtual(MACHINE.num_ranks, gpu=device, link=link, algorithm="ring")
    timeline = labkit.run(play, plan, on=world, echo=False).timeline
    assert timeline is not None
    assert step_seconds(CHAIN, plan, MACHINE) == pytest.approx(timeline.makespan_ns / 1e9, rel=0.03)


def test_a_matrix_that_is_cut_takes_its_part_of_the_memory() -> None:
    whole = memory_bytes(CHAIN, [WHOLE] * 4, MACHINE)
    assert memory_bytes(CHAIN, [COLUMNS, ROWS, ROWS, COLUMNS], MACHINE) == whole / MACHINE.num_ranks


def test_a_plan_of_other_words_or_length_is_refused() -> None:
    for plan in (["columns"], ["column"] * 4):
        with pytest.raises(ConfigError, match="is not a plan for 4 matrices"):
            step_seconds(CHAIN, plan, replace(MACHINE))
