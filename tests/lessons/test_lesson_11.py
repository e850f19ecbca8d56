"""Lesson 11 keeps its contract: topics, exercises, points; its recording and its figures are what runs give."""

from __future__ import annotations

import itertools
import random
import re
import runpy
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import labkit
from labkit import models
from labkit.checks.drive import CASE_SECONDS
from labkit.checks.values import listed
from labkit.exercises.faster_steps.recompute_plan.exercise import EXERCISE
from labkit.exercises.faster_steps.recompute_plan.hidden import cases
from labkit.lessons.source import Lesson, load
from labkit.plans.recompute import fewest_again_us, recomputing
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract

SOURCE = Path(__file__).parents[2] / "solutions" / "11_faster_steps.py"


class TestContract(LessonContract):
    number = "11"
    least_guesses = 4
    topics: ClassVar = {
        "four claims": r"each line can be true for one job",
        "look first": r"look at the timeline first",
        "a recorded run": r'labkit\.recorded\("starved_step"\)',
        "three ways a loader hangs": r"a loop that is \*\*left early\*\*",
        "the shorter of the two": r"the shorter of the two",
        "parameters in float32": r"\*\*parameters stay in float32\*\*",
        "loss scaling": r"\*\*skip the step\*\*",
        "all ranks skip together": r"\*\*all must skip together\*\*",
        "checkpointing": r"torch\.utils\.checkpoint",
        "selective recomputation": r"korthikanti",
        "the GPT": r"models\.gpt\(\)",
        "the true table": r"the true table",
        "the next lesson": r"the next question",
        "sources": r"### sources",
    }


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    return load(SOURCE)


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return namespace(number="11")


def test_what_compression_saves_is_what_the_bonus_printed() -> None:
    said = re.search(
        r"saves (\d+) % of a step at 1 Gbit/s, but only (\d+) % at 400", SOURCE.read_text().replace("\n# ", " ")
    )
    printed = SOURCE.with_suffix(".ipynb").read_text()
    shown = [re.search(rf"\b{speed} Gbit/s: [^%]* ([\d.]+)% saved", printed) for speed in (1, 400)]
    assert said is not None
    assert [int(each) for each in said.groups()] == [round(float(each[1])) for each in shown if each]


def test_what_16_bits_and_checkpoints_gain_is_what_the_cells_printed() -> None:
    text, printed = SOURCE.read_text().replace("\n# ", " "), SOURCE.with_suffix(".ipynb").read_text()
    rows = re.findall(r"([av]100|h100) \w+ +width +(\d+) +([\d.]+) +([\d.]+)", printed)
    (from_float32, from_tf32) = next((a, b) for gpu, width, a, b in rows if (gpu, width) == ("a100", "4096"))
    assert f"{float(from_float32):.0f} times as fast as float32, but only {from_tf32} times as fast as TF32" in text
    assert f"it was at most {max(float(b) for gpu, _, _, b in rows if gpu != 'v100')} times as fast" in text
    assert all(float(a) < 1 for _, width, a, _ in rows if width == "128")
    saved = re.findall(r"(\d+)% saved, ([\d.]+) times as long", printed)
    assert f"{saved[0][0]} % where activations dominate" in text
    assert f"{saved[-1][1]} to {saved[0][1]} times as long" in text


def test_the_recorded_run_is_what_the_virtual_cluster_does() -> None:
    path = SOURCE.parent / "hidden" / "faster_steps" / "starved_step" / "record.py"
    made = runpy.run_path(str(path))
    kept, fresh = labkit.recorded("starved_step"), made["record"](made["one_in_six"])
    assert list(kept.rows()) == list(fresh.rows())
    waits = [span.end_ns - span.start_ns for span in kept.rows() if span.rank == 0 and span.name == "next batch"]
    assert sum(waits) / kept.makespan_ns == pytest.approx(0.33, rel=0.1)
    long = [step for step, wait in enumerate(waits) if wait > 10_000_000]
    assert {b - a for a, b in itertools.pairwise(long)} == {6}


def test_the_best_plan_is_what_trying_all_plans_finds(answers: dict[str, Any]) -> None:
    draw = random.Random(0)
    for _ in range(20):
        sizes, times = ([draw.randint(1, 9) for _ in range(7)] for _ in range(2))
        limit = draw.randint(max(sizes), sum(sizes))
        plans = [kept for count in range(8) for kept in itertools.combinations(range(7), count)]
        facts = [recomputing(sizes, times, kept) for kept in plans]
        fitting = [each.again_us for each in facts if each.peak_mb <= limit]
        assert fewest_again_us(sizes, times, limit) == (min(fitting) if fitting else None)
        if fitting:
            mine = recomputing(sizes, times, answers["recompute_plan"](sizes, times, limit))
            assert (mine.peak_mb <= limit, mine.again_us) == (True, min(fitting))


@pytest.mark.in_turn
def test_chains_are_as_long_as_the_lesson_says_and_so_is_the_time_for_them() -> None:
    draw = random.Random(0)
    drawn = cases(draw)
    assert all(20 <= len(listed(case.inputs[0], "sizes_mb")) <= 50 for case in (*EXERCISE.visible, *drawn))
    seconds, count = CASE_SECONDS + 2 * (len(EXERCISE.visible) - 1), ("one", "two", "three")[len(EXERCISE.visible) - 1]
    text = SOURCE.read_text().replace("\n# ", " ")
    assert EXERCISE.seconds == 0  # or a case would have more
    assert "has 20 to 50 tensors" in text
    assert f"Your function has {seconds:g} s for the check's {count} chains together" in text


def test_a_peak_counts_what_is_kept_up_to_the_stretch_and_the_stretch() -> None:
    facts = recomputing([4, 1, 8, 2, 5], [1, 2, 3, 4, 5], [1, 3])
    assert (facts.peak_mb, facts.again_us, facts.fullest) == (max(4, 1 + 8, 1 + 2 + 5), 1 + 3 + 5, 1)


def test_autocast_gives_the_gpt_the_gradients_of_torchs(answers: dict[str, Any]) -> None:
    tokens, targets = models.Addition().batch(0, 8)

    def gradients(context: Any) -> torch.Tensor:
        model = models.GPT()
        with context:
            loss = models.loss_of(model, tokens, targets)
        torch.autograd.backward(loss)
        return torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])

    ours, torchs = gradients(answers["Autocast"]()), gradients(torch.autocast("cpu", torch.bfloat16))
    assert nn.functional.cosine_similarity(ours, torchs, dim=0) > 0.999
