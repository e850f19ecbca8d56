"""Lesson 01 keeps its contract: topics, exercises, points, and a MiniDataParallel that equals one process."""

from __future__ import annotations

import json
import runpy
import types
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import nn

import labkit
from labkit.checks.on_ranks.hard_model import HardModel, hard_batch
from labkit.hardware import find_link
from labkit.lessons.source import Lesson, load
from tests.lessons.contract import LessonContract

SOURCE = Path(__file__).parents[2] / "solutions" / "01_data_parallel.py"
KEYS = Path(__file__).parents[2] / "labkit" / "exercises" / "data_parallel"


class TestContract(LessonContract):
    number = "01"
    least_guesses = 2
    topics: ClassVar = {
        "why learn it": r"why build it\?",
        "stuck": r"labkit\.lend\(",
        "gradients reach the original": r"added up in the \*\*original's\*\* `\.grad`",
        "fewer samples than devices": r"fewer samples than devices",
        "buffers": r"\*\*buffers\*\* need a decision",
        "an exception in one replica": r"an exception ends its own thread",
        "BatchNorm of a piece": r"\*\*its own piece\*\*",
        "float64": r"in float64",
        "the GIL": r"global interpreter lock",
        "one process for each GPU": r"\*\*one process for each gpu\*\*",
        "a recorded run": r'labkit\.recorded\("hot_spot"\)',
        "predict, then run": r'labkit\.predict\("all_reduce_step_ms"[\s\S]*labkit\.reveal\("all_reduce_step_ms"',
        "against all_reduce": r"all_reduce\(parameter\.grad\)",
        "the plan as data": r"class move",
        "unequal devices": r"largest remainder",
        "mean of means": r"losses\.mean\(\)",
        "the next lesson": r"the next question",
        "sources": r"### sources",
    }


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


@pytest.fixture
def answers(lesson: Lesson) -> types.ModuleType:
    module = types.ModuleType("lesson_01")
    for cell in lesson.cells:
        if cell.role in ("given", "exercise"):
            exec(compile(cell.source, cell.id, "exec", dont_inherit=True), module.__dict__)
    return module


def test_it_says_nothing_of_what_never_ran(lesson: Lesson) -> None:
    assert not any("cuda" in cell.source for cell in lesson.cells if cell.kind == "code")


def test_the_recorded_run_is_what_the_virtual_cluster_does() -> None:
    record = runpy.run_path(str(SOURCE.parent / "hidden" / "data_parallel" / "hot_spot" / "record.py"))["record"]
    kept, fresh = labkit.recorded("hot_spot"), record()
    assert list(kept.rows()) == list(fresh.rows())
    starts = {span.rank: span.start_ns / 1e6 for span in kept.rows() if span.name == "forward"}
    answers = json.loads((KEYS / "hot_spot" / "key.json").read_text(encoding="utf-8"))["answers"]
    assert answers["starts_ms"] == pytest.approx(max(starts.values()), rel=0.01)
    of_class = labkit.Timeline.load(SOURCE.parent / "hidden" / "data_parallel" / "hot_spot" / "recording.json")
    assert list(of_class.rows()) == list(record(6).rows())
    assert [each.makespan_ns / 1e6 for each in (kept, of_class)] == pytest.approx([98.3] * 2, abs=0.05)  # quoted


def test_no_cell_is_over_long(lesson: Lesson) -> None:
    for cell in lesson.cells:
        limit = 75 if cell.role == "exercise" else 36
        assert len(cell.source.splitlines()) <= limit, f"{cell.id} (line {cell.line}); cut it in two"


def test_what_the_text_adds_up_is_what_ports_carry(lesson: Lesson) -> None:
    text = " ".join(cell.source for cell in lesson.cells if cell.kind == "markdown").replace("\n", " ")
    rate = find_link("pcie4").payload_bytes_per_second
    moved = sum(message.bytes for message in labkit.recorded("hot_spot").messages())
    gradients = 8 * (2048 * 2048 + 2048) * 4
    moving_ms = f"{1e3 * moved / rate:.0f}"
    assert f"these {moved / 1e9:.2f} GB take about {moving_ms} ms at {rate / 1e9:.0f} GB/s" in text
    models = 2 * 7 * gradients
    assert f"gradients come back ({models / 1e9:.2f} GB)" in text
    assert f"outputs and the outputs' gradients ({(moved - models) / 1e9:.2f} GB)" in text
    assert f"7/4 of the {gradients / 1e6:.0f} MB" in text
    ends = [(each.src, each.dst) for each in labkit.recorded("hot_spot").messages() if each.bytes == gradients]
    assert sorted(ends) == [*((0, i) for i in range(1, 8)), *((i, 0) for i in range(1, 8))]
    assert "7 each way with eight devices" in text
    assert 2 * (8 - 1) / 8 == 7 / 4 and "2(N-1)/N times the gradients (see lesson 02): 7/4 each way" in " ".join(
        text.split()
    )
    assert f"{1e3 * 7 / 4 * gradients / rate:.1f} ms instead of {moving_ms}" in text
    assert f"Each further device costs at least {1e3 * 2 * gradients / rate:.0f} ms: its model goes out" in text
    saved = [f"{100.6 / n - 100.6 / (n + 1):.0f}" for n in (1, 2, 3)]
    assert f"second device saves {saved[0]} ms of computing, the third {saved[1]}, the fourth only {saved[2]}." in text


@pytest.mark.in_turn
def test_three_devices_are_faster_than_one_two_four_or_eight_as_the_opening_says(lesson: Lesson) -> None:
    step = runpy.run_path(str(SOURCE.parent / "hidden" / "data_parallel" / "hot_spot" / "record.py"))["step"]
    took = {8: labkit.recorded("hot_spot").makespan_ns / 1e6}
    for n in (1, 2, 3, 4):
        world = labkit.virtual(n, gpu="a100", link="pcie4")
        timeline = labkit.run(step, 0, 8192, on=world, echo=False).timeline
        assert timeline is not None
        took[n] = timeline.select(timeline.name != "uniform_").makespan_ns / 1e6
    assert min(took, key=took.__getitem__) == 3
    text = " ".join(cell.source for cell in lesson.cells if cell.kind == "markdown").replace("\n", " ")
    assert f"three of them take {took[3]:.0f} ms, and eight take {took[8]:.0f} ms" in text
    assert took[1] == pytest.approx(100.6, rel=0.005) and "One A100 takes 101 ms for a training step" in text


@pytest.mark.parametrize("num_devices", [1, 3, 4])
def test_three_steps_on_the_hard_model_equal_one_process_on_the_whole_batch(
    answers: types.ModuleType, num_devices: int
) -> None:
    alone, together = HardModel(4, norm=False), HardModel(4, norm=False)
    wrapped = answers.MiniDataParallel(together, [torch.device("cpu")] * num_devices)
    for step in range(3):
        x, y = hard_batch(step, 11)
        for model, called in ((alone, alone), (together, wrapped)):
            model.zero_grad()
            torch.autograd.backward(nn.functional.mse_loss(called(x=x), y))
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter.sub_(0.1 * parameter.grad)
    for (name, mine), theirs in zip(together.state_dict().items(), alone.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-13, msg=name)


@pytest.mark.parametrize(("choice", "seen"), [("made once", "wrong"), ("each step", "right")])
def test_replicas_that_are_made_once_go_wrong_silently(answers: types.ModuleType, choice: str, seen: str) -> None:
    alone, together = HardModel(4, norm=False), HardModel(4, norm=False)
    devices = [torch.device("cpu")] * 3
    wrapped = answers.MiniDataParallel(together, devices)
    if choice == "made once":
        made = answers.replicate(together, devices)
        vars(answers)["replicate"] = lambda module, few: made[: len(few)]
    for step in range(2):
        x, y = hard_batch(step, 9)
        for model, called in ((alone, alone), (together, wrapped)):
            model.zero_grad()
            torch.autograd.backward(nn.functional.mse_loss(called(x=x), y))
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter.sub_(0.1 * parameter.grad)
    assert torch.allclose(alone.stem.weight, together.stem.weight, rtol=1e-12) is (seen == "right")
