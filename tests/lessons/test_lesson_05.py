"""Lesson 05 keeps its contract: topics, exercises, points, and a MiniDDP that does what torch's DDP does."""

from __future__ import annotations

import json
import re
import runpy
import types
from collections.abc import Callable
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
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract

SOURCE = Path(__file__).parents[2] / "solutions" / "05_ddp_for_real_models.py"
KEYS = Path(__file__).parents[2] / "labkit" / "exercises" / "ddp_for_real_models"


class TestContract(LessonContract):
    number = "05"
    least_guesses = 1
    topics: ClassVar = {
        "stuck": r"labkit\.lend\(",
        "accumulation": r"\*\*gradient accumulation\*\*",
        "skipped layers": r"\*\*skipped layers\.\*\*",
        "used by nobody": r"\*\*used by nobody\.\*\*",
        "buffers": r"\*\*buffers\.\*\*",
        "shared weights": r"\*\*shared weights\*\*",
        "sparse gradients": r"\*\*sparse\*\* gradients",
        "mixed dtypes": r"different dtypes",
        "SyncBatchNorm": r"convert_sync_batchnorm",
        "a recorded run": r'labkit\.recorded\("trains_worse"\)',
        "a checksum": r"checksum",
        "clipping": r"clips its own gradient",
        "float16": r"65,504",
        "uneven inputs": r"ddp\.join\(\)",
        "weak and strong scaling": r"\*\*weak scaling\*\*[\s\S]*\*\*strong scaling\*\*",
        "linear scaling": r"\*\*linear scaling rule\*\*",
        "the square root": r"the square root of n",
        "warm-up": r"\*\*warm-up\*\*",
        "critical batch size": r"\*\*critical batch\s+size\*\*",
        "set_epoch": r"set_epoch",
        "the GPT": r"gpt\(seed=",
        "the next lesson": r"06_parameter_server",
        "sources": r"### sources",
    }


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


@pytest.fixture(scope="module")
def answers() -> types.SimpleNamespace:
    return types.SimpleNamespace(**namespace(number="05"))


def test_no_cell_is_over_long(lesson: Lesson) -> None:
    for cell in lesson.cells:
        limit = 75 if cell.is_code_exercise else 40
        assert len(cell.source.splitlines()) <= limit, f"{cell.id} (line {cell.line}); cut it in two"


@pytest.mark.long
def test_the_recorded_run_is_what_the_virtual_cluster_does() -> None:
    folder = SOURCE.parent / "hidden" / "ddp_for_real_models" / "trains_worse"
    fresh = runpy.run_path(str(folder / "record.py"))["record"](2, "steps before the last bucket")
    assert list(labkit.recorded("trains_worse").rows()) == list(fresh.rows())


def test_the_rank_that_drifts_steps_as_early_as_the_key_says() -> None:
    first: dict[int, float] = {}
    arrived: dict[int, list[float]] = {}
    for span in labkit.recorded("trains_worse").rows():
        if span.name == "optimizer":
            first.setdefault(span.rank, span.start_ns / 1e6)
        if span.kind == "all_reduce":
            arrived.setdefault(span.rank, []).append(span.end_ns / 1e6)
    key = json.loads((KEYS / "trains_worse" / "key.json").read_text(encoding="utf-8"))["answers"]
    early = {rank: sorted(arrived[rank])[5] - first[rank] for rank in first}  # six all-reduces a step
    assert [rank for rank, ms in early.items() if ms > 0] == [key["rank"]]
    assert early[key["rank"]] == pytest.approx(key["gap_ms"], rel=0.03)


def _train(wrapper: Any, steps: int) -> list[torch.Tensor]:
    rank = dist.get_rank()
    model = HardModel(5 + rank)
    ddp = wrapper(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9, weight_decay=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        x, y = hard_batch(100 * step + rank, 4)
        torch.autograd.backward(nn.functional.mse_loss(ddp(x, spare=step == 1 and rank == 1), y))
        if hasattr(ddp, "finish_gradient_synchronization"):
            ddp.finish_gradient_synchronization()
        optimizer.step()
    return [tensor.clone() for tensor in model.state_dict().values()]


@pytest.mark.in_turn
def test_mini_ddp_trains_the_torture_model_as_torchs_ddp_does(answers: types.SimpleNamespace) -> None:
    torchs = partial(nn.parallel.DistributedDataParallel, find_unused_parameters=True)
    world = labkit.local(3, device="cpu")
    ours = labkit.run(_train, answers.MiniDDP, 3, on=world, echo=False).results
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


def test_mini_ddp_averages_complex_and_mixed_dtypes_as_torchs_ddp_does(answers: types.SimpleNamespace) -> None:
    world = labkit.virtual(2)
    theirs = labkit.run(_mixed, nn.parallel.DistributedDataParallel, on=world, echo=False).results
    ours = labkit.run(_mixed, answers.MiniDDP, on=world, echo=False).results
    for mine, other in zip(ours, theirs, strict=True):
        assert len(mine) == 4
        for a, b in zip(mine, other, strict=True):
            torch.testing.assert_close(a, b)


def _sparse(wrap: Any) -> None:
    wrapped = wrap(nn.Embedding(4, 2, sparse=True))
    wrapped(torch.tensor([dist.get_rank()])).sum().backward()


def test_mini_ddp_refuses_a_sparse_gradient_by_name(answers: types.SimpleNamespace) -> None:
    with pytest.raises(RankFailed, match=r"MiniDDP averages dense gradients, and one is sparse"):
        labkit.run(_sparse, answers.MiniDDP, on=labkit.virtual(2), echo=False)


@pytest.mark.parametrize(("kind", "longer"), [(torch.optim.SGD, 1), (torch.optim.Adam, 4)])
def test_where_noise_dominates_sixteen_ranks_make_adams_step_four_times_as_long_and_not_sgds(
    kind: Callable[..., torch.optim.Optimizer], longer: int
) -> None:
    moved = []
    for num_ranks in (1, 16):
        torch.manual_seed(0)
        weights = nn.Parameter(torch.zeros(100_000))
        optimizer = kind([weights], lr=0.01)
        for _ in range(20):
            weights.grad = 1 + 50 * torch.randn(len(weights)) / num_ranks**0.5
            optimizer.step()
        moved.append(-weights.mean().item())
    assert moved[1] / moved[0] == pytest.approx(longer, rel=0.1)


def test_the_text_explains_strong_scaling_with_the_numbers_of_its_cell(lesson: Lesson) -> None:
    stored = SOURCE.with_suffix(".ipynb").read_text(encoding="utf-8")
    text = " ".join(cell.source for cell in lesson.cells if cell.kind == "markdown").replace("\n", " ")
    (shown,) = set(re.findall(r"64 GPUs: strong +([\d.]+) ms for ([\d.]+)", stored))
    step_ms, alone_ms = map(float, shown)
    assert f"Alone, a GPU computes for {alone_ms} ms in a step. A 64th of that is {alone_ms / 64:.1f} ms" in text
    assert f"a step on 64 GPUs takes {step_ms}." in text
    assert f"{4 * (2048 * 2048 + 2048) * 4 / 1e6:.0f} MB of gradients" in text
    leaves_a_node, card = 2 * 7 / 8 * 4 * (2048 * 2048 + 2048) * 4, 12.5e9  # eight nodes, 100 Gbit/s
    assert "computes for 24 ms and sends for about 2 ms" in text and round(step_ms - alone_ms / 64) == 2
    assert (
        round(1e3 * leaves_a_node / card, -1) == 10 and "through one card, that alone would take about 10 ms." in text
    )


@pytest.mark.long
def test_two_steps_of_the_gpt_have_the_loss_of_torchs_ddp(answers: types.SimpleNamespace) -> None:
    world = labkit.local(2, device="cpu")
    mine, torchs = (
        labkit.run(answers.train_gpt, wrap, 2, on=world, echo=False).results[0]
        for wrap in (answers.MiniDDP, nn.parallel.DistributedDataParallel)
    )
    assert mine == pytest.approx(torchs, rel=1e-4)
