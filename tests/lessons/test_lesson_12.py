"""Lesson 12 keeps its contract; its GPT equals one process and torch's own plan, forward, backward and after steps."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import labkit
from labkit.lessons.source import Lesson, load
from labkit.models import GPT, Addition, train
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract
from tests.simulator.torchs_tensor_parallel import train_torchs

SOURCE = Path(__file__).parents[2] / "solutions" / "12_tensor_parallel.py"
KEYS = Path(__file__).parents[2] / "labkit" / "exercises" / "tensor_parallel"
STEPS = 5


class TestContract(LessonContract):
    number = "12"
    least_guesses = 2
    topics: ClassVar = {
        "stuck": r"labkit\.lend\(",
        "columns, then rows": r"first matrix by columns and its second by rows",
        "weights are transposed": r"stores its weight transposed",
        "conjugate": r"\*\*conjugate\*\*",
        "the bias counts once": r"it counts n times",
        "q, k and v": r"all of q and half of k",
        "tied embeddings": r"\*tied\*",
        "an odd vocabulary": r"3, 3, 2, 2, 2",
        "sequence parallelism": r"\*\*sequence parallelism\*\*",
        "random state": r"drop the \*same\* numbers everywhere",
        "a norm's gradient": r"weight's gradient is a partial sum",
        "a recorded run": r'labkit\.recorded\("lone_gradient"\)',
        "across machines": r"infiniband connects machines",
        "a launch": r"launching takes longer than\s+computing",
        "one loss, two ways": r"alone = labkit\.run\(train_whole",
        "context parallelism": r"\*\*context parallelism\*\*",
        "the next lesson": r"the next question",
        "sources": r"### sources",
    }


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return namespace(number="12")


@pytest.fixture(scope="module")
def alone() -> list[float]:
    return train(GPT(), Addition(), STEPS, max_norm=float("inf"))


@pytest.mark.in_turn
@pytest.mark.parametrize("num_ranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_training_on_virtual_ranks_has_the_losses_of_one_process(
    answers: dict[str, Any], alone: list[float], num_ranks: int
) -> None:
    found = labkit.run(answers["train_parallel"], STEPS, on=labkit.virtual(num_ranks), echo=False)
    for losses in found.results:
        assert losses == pytest.approx(alone, rel=1e-5)


@pytest.mark.in_turn
@pytest.mark.parametrize("sequence", [pytest.param(False, marks=pytest.mark.long), True])
def test_training_has_the_losses_of_torchs_own_plan(alone: list[float], sequence: bool) -> None:
    found = labkit.run(train_torchs, STEPS, sequence, on=labkit.virtual(2), echo=False)
    for losses in found.results:
        assert losses == pytest.approx(alone, rel=1e-5)


@pytest.mark.long
def test_training_on_local_ranks_has_the_losses_of_torchs_own_plan_there(
    answers: dict[str, Any], alone: list[float]
) -> None:
    world = labkit.local(2, device="cpu")
    mine = labkit.run(answers["train_parallel"], STEPS, on=world, echo=False)
    torchs = labkit.run(train_torchs, STEPS, True, on=world, echo=False)
    for losses in (*mine.results, *torchs.results):
        assert losses == pytest.approx(alone, rel=1e-5)


@pytest.mark.in_turn
def test_every_gradient_is_that_of_one_process(answers: dict[str, Any]) -> None:
    def gradients() -> list[list[torch.Tensor]]:
        model = answers["ParallelGPT"](GPT().double())
        torch.autograd.backward(answers["parallel_loss"](model, *Addition().batch(0, 8)))
        block = model.blocks[0]
        return [[model.rows.grad], [block.mlp.up.grad], [block.norm1.weight.grad, block.mlp.bias.grad]]

    whole = GPT().double()
    tokens, targets = Addition().batch(0, 8)
    torch.nn.functional.cross_entropy(whole(tokens).flatten(0, 1), targets.flatten(), ignore_index=-100).backward()  # type: ignore[no-untyped-call]
    found = labkit.run(gradients, on=labkit.virtual(3), echo=False).results
    first: Any = whole.blocks[0]
    for place, wanted in ((0, whole.tokens.weight.grad), (1, first.up.weight.grad)):
        torch.testing.assert_close(torch.cat([each[place][0] for each in found]), wanted, rtol=1e-9, atol=1e-12)
    for each in found:
        torch.testing.assert_close(each[2][0], first.norm1.weight.grad, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(each[2][1], first.down.bias.grad, rtol=1e-9, atol=1e-12)


def test_what_travels_is_what_the_text_counts(answers: dict[str, Any]) -> None:
    """Ten activations of (batch x tokens x width) in a step of two blocks, and three numbers for each token."""

    def step() -> None:
        torch.autograd.backward(answers["parallel_loss"](answers["ParallelGPT"](GPT()), *Addition().batch(0, 64)))

    timeline: Any = labkit.run(step, on=labkit.virtual(2), echo=False).timeline
    calls = [each for each in timeline.collectives() if each.rank == 0]
    whole = 64 * 8 * 96 * 4
    assert sum(call.bytes == whole for call in calls) == 2 * 4 + 2
    assert sum(call.bytes for call in calls) == (2 * 4 + 2) * whole + 3 * 64 * 8 * 4


def test_the_recorded_run_is_what_the_virtual_cluster_does() -> None:
    made = runpy.run_path(str(SOURCE.parent / "hidden" / "tensor_parallel" / "lone_gradient" / "record.py"))
    assert list(labkit.recorded("lone_gradient").rows()) == list(made["record"]().rows())
    room = SOURCE.parent / "hidden" / "tensor_parallel" / "lone_gradient"
    of_class = json.loads((room / "key.json").read_text(encoding="utf-8"))["answers"]
    assert (of_class["layer"], of_class["rank"]) not in ((made["LAYER"], made["RANK"]), (made["LAYER"], 0))
    assert list(labkit.Timeline.load(room / "recording.json").rows()) == list(
        made["record"](of_class["layer"], (2, 0, 1, 3, 1, 2)).rows()
    )
    answers = json.loads((KEYS / "lone_gradient" / "key.json").read_text(encoding="utf-8"))["answers"]
    assert (answers["layer"], answers["rank"]) == (made["LAYER"], made["RANK"])


def test_the_shares_of_a_step_and_of_memory_are_those_that_the_cells_printed() -> None:
    text, printed = SOURCE.read_text().replace("\n# ", " "), SOURCE.with_suffix(".ipynb").read_text()
    ms = {int(size): float(each) for size, each in re.findall(r'" +(\d+) +([\d.]+) ms +[\d.]+ ms', printed)}
    efficiencies = [f"{ms[1] / size / ms[size]:.0%}".replace("%", " %") for size in (8, 16)]
    assert f"are {ms[8] / ms[16]:.1f} times as fast, and the efficiency falls from {' to '.join(efficiencies)}" in text
    whole, apart = re.findall(r"activations ([\d.]+) MB at the peak", printed)
    assert f"keeps {whole} MB of activations" in text and f"of the {apart} MB that are left" in text


@pytest.mark.long
def test_times_that_the_text_quotes_are_those_of_the_virtual_cluster(answers: dict[str, Any]) -> None:
    (cell,) = [cell for cell in load(SOURCE).cells if cell.kind == "code" and "def step_ms" in cell.source]
    names = {**answers}
    exec(cell.source.split("\nprint(")[0], names)
    quoted = {(1, 8192, 2048): 13.9, (8, 8192, 2048): 2.8, (16, 8192, 2048): 2.3}
    quoted |= {(1, 4096, 128): 0.53, (8, 4096, 128): 0.30, (16, 4096, 128): 0.34}
    for asked, ms in quoted.items():
        assert names["step_ms"](*asked) == pytest.approx(ms, rel=0.02), asked
    parts = {size: _computing_and_reducing_ms(names["one_block"], size) for size in (8, 16)}
    said = SOURCE.read_text().replace("\n# ", " ")
    assert f"{parts[8][0]:.1f} ms of computing and {parts[8][1]:.1f} ms of all-reduces" in said
    assert parts[16][0] > parts[8][0] / 2
    assert f"computing takes {parts[16][0]:.1f} ms. That is more than half of {parts[8][0]:.1f} ms" in said
    assert f"grow from {parts[8][1]:.1f} to {parts[16][1]:.1f} ms" in said
    uncut = 2 * parts[16][0] - parts[8][0]  # a + b / N: what is left when b / N is taken off
    assert f"residuals ({uncut:.1f} ms) are not cut" in said


def _computing_and_reducing_ms(one_block: Any, size: int) -> tuple[float, float]:
    """Return the milliseconds of a wide block's step outside its all-reduces, and inside."""
    world = labkit.virtual(size, gpu="h100", link="nvlink4")
    timeline: Any = labkit.run(one_block, 8192, 2048, on=world, echo=False).timeline
    spans = [span for span in timeline.rows() if span.rank == 0]
    (step,) = [span for span in spans if span.name == "step"]
    reducing = sum(each.end_ns - each.start_ns for each in spans if each.kind == "all_reduce") / 1e6
    return (step.end_ns - step.start_ns) / 1e6 - reducing, reducing
